//! Names, templates and common names: what is written is read back as the same.
//!
//! The input is text, line by line: a user template, a group template, a cluster, an addon, an agent, a common name.
#![no_main]

use addon_signer_core::identity::{Convention, PeerIdentity};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let mut lines = text.splitn(6, '\n');
    let mut next = || lines.next().unwrap_or_default();
    let user = next();
    let group = next();
    let names = (next().parse(), next().parse(), next().parse());
    let common_name = next();
    read_then_write(&Convention::default(), common_name);
    let Ok(convention) = Convention::new(user, &[group], &[group]) else { return };
    read_then_write(&convention, common_name);
    if let (Ok(cluster), Ok(addon), Ok(agent)) = names {
        let identity = PeerIdentity { cluster, addon, agent };
        write_then_read(&convention, &identity, user.contains("{agent}"));
    }
});

fn read_then_write(convention: &Convention, common_name: &str) {
    if let Ok(identity) = convention.identify(common_name) {
        assert_eq!(convention.user(&identity), common_name);
        assert_eq!(identity.cluster.as_str().parse(), Ok(identity.cluster));
    }
}

fn write_then_read(convention: &Convention, identity: &PeerIdentity, agent_is_written: bool) {
    let read = convention.identify(&convention.user(identity)).expect("written by the convention");
    assert_eq!((&read.cluster, &read.addon), (&identity.cluster, &identity.addon));
    if agent_is_written {
        assert_eq!(read.agent, identity.agent);
    } else {
        assert_eq!(read.agent.as_str(), identity.addon.as_str());
    }
    for text in convention.groups(&read.cluster, &read.addon) {
        assert!(!text.contains(['{', '}']));
    }
}
