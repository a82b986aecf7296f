//! The last lines of what a program wrote, of its two output streams together.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use crate::protocol::LAST_LINES;

/// Longest line kept, in bytes.
const LINE_BYTES: usize = 1024;
/// So many last lines of standard error are never pushed out by standard output: they say what went wrong.
const OF_STDERR: usize = LAST_LINES / 2;

/// An output stream of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

#[derive(Default)]
struct Kept {
    /// Lines with the number of their arrival, of each stream.
    stdout: VecDeque<(u64, String)>,
    stderr: VecDeque<(u64, String)>,
    arrived: u64,
}

/// Collects the lines of both streams.
#[derive(Clone, Default)]
pub(crate) struct LastLines(Arc<Mutex<Kept>>);

impl LastLines {
    /// The end of a stream that is fed with its bytes.
    pub(crate) fn stream(&self, stream: Stream) -> Lines {
        Lines { all: self.clone(), stream, line: Vec::new() }
    }

    /// At most [`LAST_LINES`] lines, oldest first.
    pub(crate) fn lines(&self) -> Vec<String> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // What two pipes carry arrives in no sure order: errors have a share of their own, the newest fill up.
        let reserved = kept.stderr.len().min(OF_STDERR);
        let (older, errors) = kept.stderr.as_slices();
        let all_errors = || older.iter().chain(errors).rev();
        let mut rest: Vec<&(u64, String)> = kept.stdout.iter().chain(all_errors().skip(reserved)).collect();
        rest.sort_by_key(|(arrival, _)| std::cmp::Reverse(*arrival));
        let mut chosen: Vec<&(u64, String)> =
            all_errors().take(reserved).chain(rest.into_iter().take(LAST_LINES - reserved)).collect();
        chosen.sort_by_key(|(arrival, _)| *arrival);
        chosen.into_iter().map(|(_, line)| line.clone()).collect()
    }

    fn keep(&self, stream: Stream, line: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let arrival = kept.arrived;
        kept.arrived += 1;
        let lines = match stream {
            Stream::Stdout => &mut kept.stdout,
            Stream::Stderr => &mut kept.stderr,
        };
        if lines.len() == LAST_LINES {
            lines.pop_front();
        }
        lines.push_back((arrival, String::from_utf8_lossy(line).into_owned()));
    }
}

/// Cuts one stream into lines. What has no line end is a line once this is dropped.
pub(crate) struct Lines {
    all: LastLines,
    stream: Stream,
    line: Vec<u8>,
}

impl Lines {
    /// The next bytes of the stream.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if byte == b'\n' {
                self.all.keep(self.stream, &self.line);
                self.line.clear();
            } else if self.line.len() < LINE_BYTES {
                self.line.push(byte);
            }
        }
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        if !self.line.is_empty() {
            self.all.keep(self.stream, &self.line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(count: usize) -> String {
        (1..=count).map(|n| format!("{n}\n")).collect()
    }

    #[test]
    fn the_newest_lines_stay_in_their_order_and_an_unended_one_counts() {
        let all = LastLines::default();
        let (mut out, mut err) = (all.stream(Stream::Stdout), all.stream(Stream::Stderr));
        out.feed(numbers(15).as_bytes());
        err.feed(b"first\nsecond\n");
        out.feed(b"16\n17\nun");
        out.feed(b"ended");
        drop((out, err));
        let lines = all.lines();
        assert_eq!(lines.len(), LAST_LINES);
        assert_eq!(lines[..2], ["1", "2"]);
        assert_eq!(lines[14..], ["15", "first", "second", "16", "17", "unended"]);
    }

    #[test]
    fn a_flood_of_output_does_not_push_out_the_error_before_it() {
        let all = LastLines::default();
        all.stream(Stream::Stderr).feed(b"boom\n");
        all.stream(Stream::Stdout).feed(numbers(300).as_bytes());
        let lines = all.lines();
        assert_eq!(
            (lines.len(), lines[0].as_str(), lines[LAST_LINES - 1].as_str()),
            (LAST_LINES, "boom", "300")
        );
        // Errors alone have all the room.
        let errors = LastLines::default();
        errors.stream(Stream::Stderr).feed(numbers(300).as_bytes());
        assert_eq!((errors.lines().len(), errors.lines()[0].as_str()), (LAST_LINES, "281"));
    }
}
