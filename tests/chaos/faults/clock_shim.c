/* What time a process is reported: loaded before libc (LD_PRELOAD), obeys a file that is mapped by both sides.

   The wall clock jumps by an offset. The monotonic clock never jumps and never goes back, as the kernel's never does,
   but it may run at another rate, and every wait with a time-out is as long as the clock says. Environment:
   STRANDLINE_CLOCK names the file, `struct orders` below. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define NS 1000000000LL
/* No machine has been up for that long, and no wall clock is that early. */
#define EARLIEST_WALL_S 1000000000LL

/* Written by clock.py. `turn` is odd while it writes. */
struct orders {
  uint64_t turn;
  int64_t wall_offset_ns;
  int64_t since_ns;  /* real monotonic time of the last change of rate */
  int64_t shown_ns;  /* what the clock showed then */
  double rate;
  double rate_before;
  uint64_t wrong_answers;  /* counted here: how often a caller got a wrong time */
};

static struct orders still = {0, 0, 0, 0, 1.0, 1.0, 0};
static struct orders *file = &still;
static int (*real_gettime)(clockid_t, struct timespec *);

static void *next(const char *name) { return dlsym(RTLD_NEXT, name); }

__attribute__((constructor)) static void load(void) {
  real_gettime = next("clock_gettime");
  const char *path = getenv("STRANDLINE_CLOCK");
  int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
  if (fd < 0) return;
  void *mapped = mmap(0, sizeof(struct orders), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (mapped != MAP_FAILED) file = mapped;
}

static struct orders orders_now(void) {
  struct orders copy;
  uint64_t turn;
  do {
    turn = __atomic_load_n(&file->turn, __ATOMIC_ACQUIRE);
    copy = *(volatile const struct orders *)file;
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
  } while ((turn & 1) || turn != __atomic_load_n(&file->turn, __ATOMIC_RELAXED));
  if (copy.rate != 1.0 || copy.wall_offset_ns) __atomic_fetch_add(&file->wrong_answers, 1, __ATOMIC_RELAXED);
  return copy;
}

static int64_t real_ns(clockid_t clock) {
  struct timespec at;
  if (!real_gettime) real_gettime = next("clock_gettime");
  real_gettime(clock, &at);
  return at.tv_sec * NS + at.tv_nsec;
}

static int64_t shown(const struct orders *o, int64_t mono_ns) {
  int64_t since = mono_ns - o->since_ns;
  return o->shown_ns + (int64_t)(since * (since < 0 ? o->rate_before : o->rate));
}

static int64_t shown_wall(const struct orders *o) {
  int64_t mono_ns = real_ns(CLOCK_MONOTONIC);
  return real_ns(CLOCK_REALTIME) + shown(o, mono_ns) - mono_ns + o->wall_offset_ns;
}

static struct timespec spec(int64_t ns) {
  if (ns < 0) ns = 0;
  return (struct timespec){ns / NS, ns % NS};
}

static int64_t nanoseconds(const struct timespec *at) { return at->tv_sec * NS + at->tv_nsec; }

/* An absolute time of the clock that the process is shown, as one of the kernel's. */
static struct timespec real_deadline(const struct timespec *at) {
  struct orders o = orders_now();
  int is_wall = at->tv_sec > EARLIEST_WALL_S;
  int64_t left = nanoseconds(at) - (is_wall ? shown_wall(&o) : shown(&o, real_ns(CLOCK_MONOTONIC)));
  return spec(real_ns(is_wall ? CLOCK_REALTIME : CLOCK_MONOTONIC) + (int64_t)(left / o.rate));
}

static struct timespec real_length(const struct timespec *length) {
  return spec((int64_t)(nanoseconds(length) / orders_now().rate));
}

static int real_ms(int ms) {
  if (ms <= 0) return ms;
  double real = ms / orders_now().rate;
  return real < 1 ? 1 : (int)real;
}

/* --- clocks --- */

int clock_gettime(clockid_t clock, struct timespec *at) {
  struct orders o;
  switch (clock) {
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE:
      o = orders_now();
      *at = spec(shown_wall(&o));
      return 0;
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_COARSE:
    case CLOCK_MONOTONIC_RAW:
    case CLOCK_BOOTTIME:
      o = orders_now();
      *at = spec(shown(&o, real_ns(CLOCK_MONOTONIC)));
      return 0;
    default:
      if (!real_gettime) real_gettime = next("clock_gettime");
      return real_gettime(clock, at);
  }
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
  struct orders o = orders_now();
  struct timespec now = spec(shown_wall(&o));
  (void)zone;
  *at = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
  return 0;
}

time_t time(time_t *at) {
  struct orders o = orders_now();
  time_t now = shown_wall(&o) / NS;
  if (at) *at = now;
  return now;
}

/* --- waits --- */

#define REAL(name)                 \
  static __typeof__(name) *real;   \
  if (!real) real = next(#name)

int epoll_wait(int fd, struct epoll_event *events, int most, int ms) {
  REAL(epoll_wait);
  return real(fd, events, most, real_ms(ms));
}

int epoll_pwait(int fd, struct epoll_event *events, int most, int ms, const sigset_t *mask) {
  REAL(epoll_pwait);
  return real(fd, events, most, real_ms(ms), mask);
}

int poll(struct pollfd *fds, nfds_t count, int ms) {
  REAL(poll);
  return real(fds, count, real_ms(ms));
}

int ppoll(struct pollfd *fds, nfds_t count, const struct timespec *length, const sigset_t *mask) {
  REAL(ppoll);
  struct timespec scaled = length ? real_length(length) : spec(0);
  return real(fds, count, length ? &scaled : 0, mask);
}

int select(int count, fd_set *r, fd_set *w, fd_set *x, struct timeval *length) {
  REAL(select);
  if (!length) return real(count, r, w, x, 0);
  struct timespec wanted = {length->tv_sec, length->tv_usec * 1000}, scaled = real_length(&wanted);
  struct timeval left = {scaled.tv_sec, scaled.tv_nsec / 1000};
  return real(count, r, w, x, &left);
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *length, struct timespec *left) {
  REAL(clock_nanosleep);
  struct timespec scaled = flags & TIMER_ABSTIME ? real_deadline(length) : real_length(length);
  return real(clock, flags, &scaled, left);
}

int nanosleep(const struct timespec *length, struct timespec *left) {
  REAL(nanosleep);
  struct timespec scaled = real_length(length);
  return real(&scaled, left);
}

int pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *at) {
  static int (*real)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
  /* The unversioned name is that of the LinuxThreads condition, which is another struct. */
  if (!real) real = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
  if (!real) real = next("pthread_cond_timedwait");
  struct timespec deadline = real_deadline(at);
  return real(c, m, &deadline);
}

int pthread_cond_clockwait(pthread_cond_t *c, pthread_mutex_t *m, clockid_t clock, const struct timespec *at) {
  REAL(pthread_cond_clockwait);
  struct timespec deadline = real_deadline(at);
  return real(c, m, clock, &deadline);
}

int sem_timedwait(sem_t *sem, const struct timespec *at) {
  REAL(sem_timedwait);
  struct timespec deadline = real_deadline(at);
  return real(sem, &deadline);
}

int sem_clockwait(sem_t *sem, clockid_t clock, const struct timespec *at) {
  REAL(sem_clockwait);
  struct timespec deadline = real_deadline(at);
  return real(sem, clock, &deadline);
}

/* Abseil, and with it gRPC, waits by futex without libc's help. */
long syscall(long number, ...) {
  REAL(syscall);
  long a[6];
  va_list words;
  va_start(words, number);
  for (int i = 0; i < 6; i++) a[i] = va_arg(words, long);
  va_end(words);
  struct timespec changed;
  int command = a[1] & FUTEX_CMD_MASK;
  if (number == SYS_futex && a[3] && (command == FUTEX_WAIT || command == FUTEX_WAIT_BITSET)) {
    const struct timespec *given = (const struct timespec *)a[3];
    changed = command == FUTEX_WAIT ? real_length(given) : real_deadline(given);
    a[3] = (long)&changed;
  }
  return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
