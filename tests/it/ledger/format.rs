//! Checks that the worked example in docs/ledger-format.md is true.

use std::fs;
use std::path::Path;

use ring::digest;
use tempfile::TempDir;

use super::checker::check;

/// The fenced blocks of the worked example, without their fences.
fn worked_example() -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/ledger-format.md");
    let text = fs::read_to_string(path).unwrap();
    let (_, example) = text.split_once("## A worked example").unwrap();
    let blocks = example.split("\n```").skip(1).step_by(2);
    blocks.map(|block| block.split_once('\n').unwrap().1.to_owned()).collect()
}

#[tokio::test]
async fn worked_example_is_what_both_programs_compute() {
    let blocks = worked_example();
    let [first, first_hash, second, second_hash, checkpoint, console] = blocks.as_slice() else {
        panic!("the example has {} blocks", blocks.len())
    };
    for (text, hash) in [(first, first_hash), (second, second_hash)] {
        let digest = digest::digest(&digest::SHA256, text.as_bytes());
        let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, *hash);
    }

    let dir = TempDir::new().unwrap();
    let entries_file = dir.path().join("entries.txt");
    let checkpoint_file = dir.path().join("head.json");
    fs::write(&entries_file, format!("{first}\n{second}\n")).unwrap();
    fs::write(&checkpoint_file, checkpoint).unwrap();
    let (good, message) = check(&[&entries_file], Some(&checkpoint_file)).await;
    assert!(good, "{message}");
    assert_eq!(message.trim_end(), console.split_once('\n').unwrap().1);
}
