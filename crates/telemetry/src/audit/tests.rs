use std::io;

use serde_json::Value;
use tracing_subscriber::layer::SubscriberExt;

use super::*;
use addon_signer_core::registry::{Change, Eligibility};

const PEER: &str = "192.0.2.7:4711";

/// A disk of limited size: its content, and the size.
#[derive(Clone)]
struct Disk(Arc<Mutex<(Vec<u8>, usize)>>);

impl Disk {
    fn of(size: usize) -> Self {
        Self(Arc::new(Mutex::new((Vec::new(), size))))
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().0.clone()).unwrap()
    }

    fn lines(&self) -> Vec<Value> {
        self.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn grow(&self, size: usize) {
        self.0.lock().1 = size;
    }
}

impl io::Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (written, size) = &mut *self.0.lock();
        let fits = bytes.len().min(*size - written.len());
        if fits == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        written.extend_from_slice(&bytes[..fits]);
        Ok(fits)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn audited(disk: &Disk, decide: impl FnOnce(&Audit, &Clock)) {
    let clock = Clock::default();
    let subscriber = tracing_subscriber::registry().with(lines(Sink::new("the audit log", disk.clone())));
    tracing::subscriber::with_default(subscriber, || decide(&Audit::new(clock.clone()), &clock));
}

fn caller() -> Caller<'static> {
    Caller::stranger(PEER.parse().unwrap(), String::new())
}

#[test]
fn hundred_thousand_refusals_fit_in_few_lines_that_add_up() {
    let disk = Disk::of(1_000_000);
    let causes = ["NoCertificate", "UnknownIssuer", "OverCapacity"];
    audited(&disk, |audit, clock| {
        for n in 0..100_000 {
            if n % 25_000 == 24_999 {
                clock.advance(QUOTA.window);
                audit.write_due();
            }
            audit.refused_connection(&caller(), causes[n % 3], &"no");
        }
        audit.write_all();
    });
    let lines = disk.lines();
    assert!(lines.len() <= 3 * 5 * 11, "{}", lines.len());
    for cause in causes {
        let of_cause = || lines.iter().filter(move |line| line["cause"] == cause);
        let written = of_cause().filter(|line| line["event"] == "refused-connection").count() as u64;
        let counted: u64 = of_cause().filter_map(|line| line["count"].as_u64()).sum();
        let expected = (0..100_000).filter(|n| causes[n % 3] == cause).count() as u64;
        assert_eq!(written + counted, expected, "{cause}");
    }
}

#[test]
fn grants_authorities_and_eligibility_are_always_written() {
    let disk = Disk::of(10_000_000);
    let change = || EligibilityChange {
        cluster: "c1".parse().unwrap(),
        addon: "a1".parse().unwrap(),
        change: Change::Eligibility(Eligibility::Resumed),
        cause: None,
    };
    audited(&disk, |audit, _| {
        for _ in 0..1000 {
            let csr = "csr-1";
            let requester = Asker { user: "r", csr_user: None };
            let issuer = "i";
            let serial = Serial::from_hex(&"0".repeat(40)).unwrap();
            let not_after = Timestamp::from_unix(1_795_000_000);
            let grant = Grant { signer: "s", csr, requester, identity: None, issuer, serial, not_after };
            audit.granted(&grant);
            audit.authority("telemetry", "i", "prepared");
            audit.eligibility(&change());
        }
    });
    assert_eq!(disk.lines().len(), 3000);
}

#[test]
fn connections_of_one_addon_do_not_hide_those_of_another() {
    let disk = Disk::of(1_000_000);
    let identity = |cluster: &str| {
        let addon: AddOnName = "a1".parse().unwrap();
        let agent = addon_signer_core::identity::AgentName::of_addon(&addon);
        PeerIdentity { cluster: cluster.parse().unwrap(), addon, agent }
    };
    audited(&disk, |audit, _| {
        for _ in 0..500 {
            audit.admitted(&caller(), &identity("noisy"));
        }
        audit.admitted(&caller(), &identity("quiet"));
        audit.write_all();
    });
    let lines = disk.lines();
    assert_eq!(lines.len(), 12);
    assert_eq!(lines[10]["cluster"], "quiet");
    assert_eq!(
        (&lines[11]["of"], &lines[11]["cluster"], &lines[11]["addon"]),
        (&"admitted".into(), &"noisy".into(), &"a1".into())
    );
    assert_eq!(lines[11]["count"], 490);
}

#[test]
fn text_of_others_is_cut_and_cannot_end_a_line() {
    let disk = Disk::of(1_000_000);
    let forged = format!("/x\"}}\n{{\"event\":\"granted\"}}\u{7}{}", "ä".repeat(5000));
    audited(&disk, |audit, _| audit.refused_request(&caller(), "GET", &forged, "NoRoute", &forged));
    let lines = disk.lines();
    assert_eq!((lines.len(), &lines[0]["event"]), (1, &"refused-request".into()));
    let path = lines[0]["path"].as_str().unwrap();
    assert!(path.len() <= TEXT_MAX + '…'.len_utf8(), "{path}");
    assert!(forged.starts_with(path.strip_suffix('…').unwrap()), "{path}");
    assert_eq!(bounded(&"x".repeat(TEXT_MAX)), "x".repeat(TEXT_MAX));
}

#[test]
fn after_a_full_disk_lines_are_whole_again() {
    let disk = Disk::of(30);
    audited(&disk, |audit, _| {
        audit.authority("telemetry", "one", "prepared");
        audit.authority("telemetry", "two", "prepared");
        disk.grow(1000);
        audit.authority("telemetry", "three", "prepared");
    });
    let text = disk.text();
    let (torn, whole) = text.split_once('\n').unwrap();
    assert_eq!(torn.len(), 30);
    assert_eq!(serde_json::from_str::<Value>(whole).unwrap()["authority"], "three");
}

#[test]
fn times_are_the_clocks() {
    let disk = Disk::of(1000);
    audited(&disk, |audit, clock| {
        clock.set_back(Duration::from_secs(86_400 * 365));
        audit.authority("telemetry", "id", "removed");
        let time = Timestamp::from_rfc3339(disk.lines()[0]["time"].as_str().unwrap()).unwrap();
        assert!(time.until(clock.now()) < Duration::from_secs(5), "{time}");
        assert!(time <= clock.now(), "{time}");
    });
}
