//! Flags that are accepted, and flags that are not.

use clap::Parser;

use super::*;

const GOOD: &str = "addon-signer-agent --cluster cluster1 --addon telemetry --signer example.com/telemetry \
                    --hub-kubeconfig hub.kubeconfig --gateway https://gateway.example:8443";

fn parse(flags: &str) -> Result<AgentArgs, clap::Error> {
    AgentArgs::try_parse_from(format!("{GOOD} {flags}").split_whitespace())
}

#[test]
fn an_output_is_needed() {
    for good in ["--output-dir d", "--secret-namespace ns --kubeconfig f", "--output-dir d --secret-namespace ns"] {
        assert!(parse(good).is_ok(), "{good}");
    }
    let error = parse("").unwrap_err();
    assert_eq!(error.exit_code(), 2);
    assert!(error.to_string().contains("--output-dir <DIR>"), "{error}");
}

#[test]
fn bad_values_are_explained() {
    for (flags, words) in [
        ("--cluster Big", "is not a cluster name"),
        ("--signer telemetry", "example.com/name"),
        ("--expiration-seconds 10", "600"),
        ("--refresh 361s", "at most 6m"),
        ("--refresh 0s", "at least 1s"),
        ("--on-renew-timeout 0s", "at least 1s"),
        ("--on-renew-timeout soon", "is not a duration"),
    ] {
        let flag = flags.split(' ').next().unwrap();
        let others: Vec<_> = GOOD.split(" --").filter(|part| !part.starts_with(&flag[2..])).collect();
        let line = format!("{} {flags} --output-dir d", others.join(" --"));
        let error = AgentArgs::try_parse_from(line.split_whitespace()).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn a_bad_command_is_explained_and_is_wrong_usage() {
    for (command, words) in [
        ("", "names no program"),
        (" # a comment", "names no program"),
        ("''", "names no program"),
        ("systemctl 'reload nginx", "is not closed"),
        ("systemctl reload \\", "nothing follows a backslash"),
    ] {
        let line = format!("{GOOD} --output-dir d --on-renew");
        let error = AgentArgs::try_parse_from(line.split_whitespace().chain([command])).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("--on-renew <COMMAND>"), "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn a_bad_gateway_is_explained_and_is_wrong_usage() {
    let line = format!("{GOOD} --output-dir d").replace("--gateway ", "--gateway http://");
    let error = AgentArgs::try_parse_from(line.split_whitespace()).unwrap().settings().unwrap_err();
    assert!(error.is::<GatewayUrlError>(), "{error}");
    assert!(error.to_string().contains("https://HOST[:PORT]"), "{error}");
}

#[test]
fn defaults_are_ocms_convention() {
    let settings = parse("--output-dir d").unwrap().settings().unwrap();
    assert_eq!(settings.convention, Convention::default());
    assert_eq!(settings.identity.agent.as_str(), "telemetry");
    let own = parse("--output-dir d --user u:{cluster}:{addon} --group g:{addon} --group g2 --dns-name=").unwrap();
    let own = own.settings().unwrap();
    assert_eq!(own.convention.groups(&own.identity.cluster, &own.identity.addon), ["g:telemetry", "g2"]);
    assert!(own.convention.dns_names(&own.identity.cluster, &own.identity.addon).is_empty());
}

#[test]
fn the_arguments_of_the_manifest_are_accepted() {
    let manifest = include_str!("../../../../deploy/agent.yaml");
    let arguments = manifest.lines().filter_map(|line| line.trim().strip_prefix("- --")?.split(" #").next());
    let arguments: Vec<_> = arguments.collect();
    assert!(arguments.len() >= 6, "{arguments:?}");
    let line = arguments.iter().fold("addon-signer-agent".to_owned(), |line, argument| format!("{line} --{argument}"));
    AgentArgs::try_parse_from(line.split_whitespace()).unwrap().settings().unwrap();
}
