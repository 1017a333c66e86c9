//! The directory as its readers see it.

use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use super::*;

fn credentials(number: usize) -> Credentials {
    // Long enough that writing takes more than one page.
    let text = format!("{number} ").repeat(4000).into_bytes();
    Credentials { certificate: text.clone(), key: Zeroizing::new(text.clone()), bundle: text }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn what_is_saved_is_loaded_and_only_the_owner_may_read_it() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("made").join("here");
    let directory = Directory::new(path.clone());
    assert_eq!(directory.load().unwrap(), None);
    for number in 0..3 {
        directory.save(&credentials(number)).unwrap();
        assert_eq!(directory.load().unwrap(), Some(credentials(number)));
    }
    assert_eq!(mode(&path), 0o700);
    assert_eq!(mode(&fs::canonicalize(path.join(CURRENT)).unwrap()), 0o700);
    assert_eq!(mode(&path.join(KEY)), 0o600);
    let mut names: Vec<_> = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names.len(), 5, "the three links, ..data and one version: {names:?}");
}

#[test]
fn a_reader_never_sees_a_key_of_another_certificate() {
    let parent = tempfile::tempdir().unwrap();
    let directory = Directory::new(parent.path().to_owned());
    directory.save(&credentials(0)).unwrap();
    let done = AtomicBool::new(false);
    let reads = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut reads = 0;
            while !done.load(Ordering::Relaxed) {
                // If the version was replaced and removed meanwhile, the reader starts again.
                let Ok(version) = fs::canonicalize(parent.path().join(CURRENT)) else { continue };
                let (Ok(certificate), Ok(key)) = (fs::read(version.join(CERTIFICATE)), fs::read(version.join(KEY)))
                else {
                    continue;
                };
                assert_eq!(certificate, key);
                assert_eq!(certificate.len() % 4000, 0, "a file that was not whole");
                reads += 1;
            }
            reads
        });
        for number in 1..300 {
            directory.save(&credentials(number)).unwrap();
        }
        done.store(true, Ordering::Relaxed);
        reader.join().unwrap()
    });
    assert!(reads > 10, "only {reads} reads");
}

#[test]
fn two_agents_that_write_at_once_leave_one_whole_set() {
    let parent = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        for agent in 0..2 {
            let directory = Directory::new(parent.path().to_owned());
            scope.spawn(move || {
                for number in 0..100 {
                    directory.save(&credentials(2 * number + agent)).unwrap();
                }
            });
        }
    });
    let found = Directory::new(parent.path().to_owned()).load().unwrap().unwrap();
    assert!(!found.key.is_empty() && found.certificate == *found.key);
}

#[test]
fn files_of_others_are_replaced_by_name_and_left_otherwise() {
    let parent = tempfile::tempdir().unwrap();
    fs::write(parent.path().join(CERTIFICATE), "old").unwrap();
    fs::write(parent.path().join("notes"), "mine").unwrap();
    for (name, is_old) in [("cut-short", true), ("of-another-agent", false)] {
        let path = parent.path().join(format!("{OURS}{name}"));
        fs::create_dir(&path).unwrap();
        if is_old {
            File::open(&path).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        }
    }
    let directory = Directory::new(parent.path().to_owned());
    assert_eq!(directory.load().unwrap().unwrap().certificate, b"old");
    directory.save(&credentials(1)).unwrap();
    assert_eq!(directory.load().unwrap(), Some(credentials(1)));
    assert_eq!(fs::read(parent.path().join("notes")).unwrap(), b"mine");
    assert!(!parent.path().join(format!("{OURS}cut-short")).exists());
    assert!(parent.path().join(format!("{OURS}of-another-agent")).exists(), "it may be about to link it");
}

#[test]
fn a_directory_that_cannot_be_made_is_named() {
    let parent = tempfile::tempdir().unwrap();
    let file = parent.path().join("file");
    fs::write(&file, "").unwrap();
    let error = Directory::new(file.join("below")).save(&credentials(1)).unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot make the directory {}", file.join("below").display())), "{error}");
}
