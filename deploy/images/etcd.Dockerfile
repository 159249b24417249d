# Members of etcd for deploy/compose/controllers.yaml and for deploy/kubernetes/components/etcd: etcd and etcdctl, run by
# our user with a read-only root file system.
#
# ETCD has both in /usr/local/bin: the image that `deploy/images/base etcd` makes of Debian's packages, or a published one.
ARG BASE
ARG ETCD
FROM ${ETCD} AS programs

FROM ${BASE}
RUN groupadd --gid 10001 etcd \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /var/lib/etcd --shell /usr/sbin/nologin etcd \
 && install -d -o 10001 -g 10001 -m 0700 /var/lib/etcd
COPY --from=programs /usr/local/bin/etcd /usr/local/bin/etcdctl /usr/local/bin/
ENV PATH=/usr/local/bin:/usr/bin:/bin ETCDCTL_API=3
USER 10001:10001
WORKDIR /var/lib/etcd
VOLUME /var/lib/etcd
ENTRYPOINT ["etcd"]
ARG VERSION
ARG INPUTS
LABEL org.opencontainers.image.title="strandline-etcd" \
      org.opencontainers.image.description="etcd, in which Strandline's controllers keep what they decide" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      strandline.inputs="${INPUTS}"
