# Background programs: each has a file with its process id and one with its output.

start() { # NAME COMMAND...: starts it, unless it runs
  local name=$1
  shift
  if running "$name"; then return 0; fi
  setsid "$@" >>"$STATE/log/$name.log" 2>&1 </dev/null &
  echo $! >"$STATE/run/$name.pid"
}

running() { # NAME: whether the process we started under this name is still that program
  local file=$STATE/run/$1.pid
  [ -f "$file" ] && kill -0 "$(cat "$file")" 2>/dev/null && grep -q "$STATE" "/proc/$(cat "$file")/cmdline"
}

within() { # SECONDS WHAT COMMAND...: waits until the command succeeds
  local until=$((SECONDS + $1)) what=$2
  shift 2
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $until ] || fail "time-out: $what; the output of each program is in $STATE/log"
    sleep 0.2
  done
}

stop() { # NAME SECONDS: asks it to end, then makes it end
  local pid until=$((SECONDS + $2))
  if running "$1"; then
    pid=$(cat "$STATE/run/$1.pid")
    kill -CONT "$pid" 2>/dev/null || true # one that a test has stopped hears nothing else
    kill "$pid" 2>/dev/null || true
    while kill -0 "$pid" 2>/dev/null && [ $SECONDS -lt $until ]; do sleep 0.1; done
    kill -KILL "$pid" 2>/dev/null || true
  fi
  rm -f "$STATE/run/$1.pid"
}

fill() { # FILE NAME=VALUE...: the file with each @NAME@ replaced
  local file=$1 pair words=()
  shift
  for pair in "$@"; do words+=(-e "s#@${pair%%=*}@#${pair#*=}#g"); done
  sed "${words[@]}" "$here/files/$file"
}
