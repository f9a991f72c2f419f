# The product's images: one target per program.
#
#   docker build --target broker --tag rocketmq-rs/broker:0.1.0 .
#
# Targets: namesrv, broker, operator, rmq; and e2e-java, the Java clients of the
# tests, after `mvn package` in e2e/java. `cargo xtask` makes the same images
# without a registry.

# What compiles: Rust as in rust-toolchain.toml, a C compiler, the library that RUN_BASE has.
ARG BUILD_BASE=rust:1.95-bookworm
# What runs: a glibc no older than the one above. No shell is needed.
ARG RUN_BASE=debian:bookworm-slim
# What runs the Java clients of the tests.
ARG JAVA_BASE=eclipse-temurin:17-jre

FROM ${BUILD_BASE} AS build
WORKDIR /source
COPY . .
# The toolchain of the base, not a download of the one that is pinned.
RUN rm -f rust-toolchain.toml \
    && cargo build --locked --profile dist --target-dir /build \
        --package rocketmq-namesrv --package rocketmq-broker --package rocketmq-operator --package rocketmq-cli

# The user is a number, or Kubernetes could not tell that it is not root.
FROM ${RUN_BASE} AS namesrv
COPY --from=build /build/dist/namesrv /usr/local/bin/namesrv
# For people: `kubectl exec NAMESRV_POD -- rmq topic list`.
COPY --from=build /build/dist/rmq /usr/local/bin/rmq
USER 65532:65532
EXPOSE 9876
ENTRYPOINT ["/usr/local/bin/namesrv"]

FROM ${RUN_BASE} AS broker
COPY --from=build /build/dist/broker /usr/local/bin/broker
USER 65532:65532
EXPOSE 10911
ENTRYPOINT ["/usr/local/bin/broker"]

FROM ${RUN_BASE} AS operator
COPY --from=build /build/dist/operator /usr/local/bin/operator
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/operator"]

FROM ${RUN_BASE} AS rmq
COPY --from=build /build/dist/rmq /usr/local/bin/rmq
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/rmq"]

FROM ${JAVA_BASE} AS e2e-java
COPY e2e/java/target/lib-4.9.8 /opt/e2e/lib-4.9.8
COPY e2e/java/target/lib-5.3.3 /opt/e2e/lib-5.3.3
COPY e2e/java/target/lib-mqadmin-5.3.3 /opt/e2e/lib-mqadmin-5.3.3
USER 65532:65532
