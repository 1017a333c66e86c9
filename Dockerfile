# Images that have one program, the libraries of Debian that it is linked to, licences, and nothing else, and do not run
# as root. The base is named by its digest, so that a tag that is moved changes no image; take a newer one together with
# the toolchain.
#
#   docker build --target addon-signer -t addon-signer:0.1.0 .
#   docker build --target addon-signer-agent -t addon-signer-agent:0.1.0 .
#
# deploy/release.sh and the tests bring their own programs in place of the stages that compile.
ARG version=""
ARG commit=""
FROM rust:1.95-bookworm@sha256:6258907abe69656e41cd992e0b705cdcfabcbbe3db374f92ed2d47121282d4a1 AS build
WORKDIR /src
COPY . .

FROM build AS build-agent
ARG commit agent_profile=agent-image
RUN ADDON_SIGNER_COMMIT=$commit cargo build --profile $agent_profile --locked --package addon-signer-agent && \
    deploy/image.sh /image target/$agent_profile/addon-signer-agent

FROM build AS build-hub
ARG commit hub_profile=image
RUN ADDON_SIGNER_COMMIT=$commit cargo build --profile $hub_profile --locked --no-default-features \
    --package addon-signer && deploy/image.sh /image target/$hub_profile/addon-signer

FROM build AS licences
RUN cargo install --locked --version 0.9.3 --features cli cargo-about && deploy/licences.sh /licences

# The user and group of deploy/agent.yaml.
FROM scratch AS addon-signer-agent
ARG version
ARG commit
LABEL org.opencontainers.image.title="addon-signer-agent" org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.version=$version org.opencontainers.image.revision=$commit
COPY --from=build-agent /image /
COPY --from=licences /licences /licences
USER 65532:65532
ENTRYPOINT ["/addon-signer-agent"]

# The user and group of deploy/chart.
FROM scratch AS addon-signer
ARG version
ARG commit
LABEL org.opencontainers.image.title="addon-signer" org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.version=$version org.opencontainers.image.revision=$commit
COPY --from=build-hub /image /
COPY --from=licences /licences /licences
USER 65532:65532
EXPOSE 8443 8444 9090
ENTRYPOINT ["/addon-signer"]
