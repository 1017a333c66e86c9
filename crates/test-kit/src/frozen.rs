//! Freezes processes.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// Stops the process in the first argument and its children, prints that, waits for the end of its input, and lets them
/// continue.
const SCRIPT: &str = r#"
kill -s STOP "$1" && children=$(cat "/proc/$1/task/$1/children") || exit 1
for child in $children; do kill -s STOP "$child"; done
echo stopped
read -r _
kill -s CONT "$1" $children
"#;

/// A process and its children, stopped by SIGSTOP until this value is dropped or the tests end in any way: a shell
/// stops them, and lets them continue when its input ends.
pub struct Frozen(Child);

impl Frozen {
    pub fn with_children(process: u32) -> Self {
        let mut shell = Command::new("sh")
            .args(["-c", SCRIPT, "freeze", &process.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null()) // a child may have ended by itself
            .spawn()
            .unwrap();
        let mut answer = String::new();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut answer).unwrap();
        assert_eq!(answer, "stopped\n", "process {process} cannot be stopped");
        Self(shell)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // This fails only if the child was reaped already.
        let _ = self.0.wait();
    }
}
