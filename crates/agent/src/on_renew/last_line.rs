//! The last line that a command has written to its standard error, for the message about its failure.

use tokio::io::{AsyncRead, AsyncReadExt};

/// How many bytes are kept of what a command writes.
const KEPT: usize = 2048;
/// How many characters a message has of the last line.
const SHOWN: usize = 256;

/// The end of what a command has written.
#[derive(Debug, Default)]
pub(super) struct LastLine(Vec<u8>);

impl LastLine {
    /// Reads to the end, so that the command never waits for room in the pipe.
    pub(super) async fn read(&mut self, source: Option<impl AsyncRead + Unpin>) {
        let Some(mut source) = source else { return };
        let mut chunk = [0; 512];
        // What was read before an error is still worth showing.
        while let Ok(count @ 1..) = source.read(&mut chunk).await {
            self.0.extend(chunk.iter().take(count));
            self.0.drain(..self.0.len().saturating_sub(KEPT));
        }
    }

    /// The line with words before it; empty if there is none. It is one line of harmless characters, whatever was
    /// written.
    pub(super) fn said(&self) -> String {
        let text = String::from_utf8_lossy(&self.0);
        let Some(line) = text.lines().map(str::trim).rfind(|line| !line.is_empty()) else { return String::new() };
        let shown = line.chars().map(|c| if is_harmless(c) { c } else { '?' }).take(SHOWN);
        let rest = if line.chars().count() > SHOWN { "…" } else { "" };
        format!(", after it said: {}{rest}", shown.collect::<String>())
    }
}

/// Not a character that controls a terminal, breaks lines, or changes the direction or the order of others.
fn is_harmless(c: char) -> bool {
    !c.is_control()
        && !matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn said(written: &[u8]) -> String {
        let mut last_line = LastLine::default();
        last_line.read(Some(written)).await;
        assert!(last_line.0.len() <= KEPT);
        last_line.said()
    }

    #[tokio::test]
    async fn of_what_was_written_the_last_line_is_said() {
        assert_eq!(said(b"").await, "");
        assert_eq!(said(b" \n\n").await, "");
        assert_eq!(said(b"first\nthe cause \n\n").await, ", after it said: the cause");
        let much = "a line\n".repeat(10_000) + "the cause";
        assert_eq!(said(much.as_bytes()).await, ", after it said: the cause");
    }

    #[tokio::test]
    async fn a_long_line_is_cut_and_odd_characters_are_replaced() {
        let line = said("ä".repeat(300).as_bytes()).await;
        assert_eq!(line, format!(", after it said: {}…", "ä".repeat(256)));
        assert_eq!(said("\u{1b}[31mred\u{202e}\0\rx".as_bytes()).await, ", after it said: ?[31mred???x");
        assert_eq!(said(b"\xff!").await, ", after it said: \u{fffd}!");
    }
}
