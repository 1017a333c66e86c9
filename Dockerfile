# A static binary in an empty image, not root. This repository's tests have no container engine and do not build it;
# they check the manifests that run it (tests/it/deploy.rs).
#
#   docker build -t addon-signer:0.1.0 .
FROM rust:1.95-alpine AS build
# ring compiles C and assembly; musl makes the binary static.
RUN apk add --no-cache gcc musl-dev
WORKDIR /src
COPY . .
RUN cargo build --profile image --locked --no-default-features --bin addon-signer

FROM scratch
COPY --from=build /src/target/image/addon-signer /addon-signer
# Group and user of deploy/hub.yaml and deploy/agent/agent.yaml.
USER 65532:65532
EXPOSE 8443 9090
ENTRYPOINT ["/addon-signer"]
