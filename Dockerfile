# Images that have one static program, nothing else, and do not run as root. A base is named by its digest, so that a
# tag that is moved changes no image; take a newer one together with the toolchain.
#
#   docker build --target addon-signer -t addon-signer:0.1.0 .
#   docker build --target addon-signer-agent -t addon-signer-agent:0.1.0 .
#
# The tests can pull no base. They bring their own programs in place of the stages that compile, and a base with the
# libraries of these programs (tests/real/images.sh).
ARG base=scratch
FROM rust:1.95-alpine@sha256:606fd313a0f49743ee2a7bd49a0914bab7deedb12791f3a846a34a4711db7ed2 AS build
# ring compiles C and assembly; musl makes the programs static.
RUN apk add --no-cache gcc musl-dev
WORKDIR /src
COPY . .

FROM build AS build-agent
RUN cargo build --profile agent-image --locked --package addon-signer-agent

FROM build AS build-hub
RUN cargo build --profile image --locked --no-default-features --package addon-signer

# The user and group of deploy/agent.yaml.
FROM ${base} AS addon-signer-agent
LABEL org.opencontainers.image.title="addon-signer-agent" org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build-agent /src/target/agent-image/addon-signer-agent /addon-signer-agent
USER 65532:65532
ENTRYPOINT ["/addon-signer-agent"]

# The user and group of deploy/chart.
FROM ${base} AS addon-signer
LABEL org.opencontainers.image.title="addon-signer" org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build-hub /src/target/image/addon-signer /addon-signer
USER 65532:65532
EXPOSE 8443 8444 9090
ENTRYPOINT ["/addon-signer"]
