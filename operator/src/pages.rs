//! Counter pages of ranks on this machine, read as plain files.
//!
//! A page lies in a memory-backed folder, so reading the file reads the very memory that the rank writes; no
//! mapping, and thus no `unsafe`, is needed. The only word that this process writes is the stop request.

use std::fs::{File, OpenOptions};
use std::io;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::path::Path;

use dem_page::{LEVEL_NETWORK, LEVEL_NODE, MAGIC, MESSAGE_BYTES, PAGE_BYTES, Page, State, file_name};
use serde::Serialize;

/// One rank's counters at one moment; the meaning of every field is that of [`Page`].
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RankFigures {
    /// Rank number.
    pub rank: u32,
    /// What the rank is doing; absent for a value that this version does not know.
    #[serde(skip)]
    pub state: Option<State>,
    /// Last completed step.
    pub step: u64,
    /// Step at which the run ends.
    pub end_step: u64,
    /// First step of this attempt.
    pub start_step: u64,
    /// Step of the attempt's last complete checkpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_step: Option<u64>,
    /// Particles owned.
    pub particles: u64,
    /// Ghosts held.
    pub ghosts: u64,
    /// Thread CPU seconds of computing.
    pub calc_seconds: f64,
    /// Wall seconds in communication.
    pub comm_seconds: f64,
    /// Wall seconds waiting before communication, in profile mode.
    pub wait1_seconds: f64,
    /// Wall seconds waiting after communication, in profile mode.
    pub wait2_seconds: f64,
    /// Payload bytes received from ranks of the same node.
    pub node_bytes: u64,
    /// Payload bytes received from ranks of other nodes.
    pub network_bytes: u64,
    /// Why the rank failed; empty otherwise.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// The figures of rank `rank` from the pages' folder; `None` while it has no valid page.
///
/// # Errors
/// When the file exists and cannot be read.
pub fn read(folder: &Path, rank: u32) -> io::Result<Option<RankFigures>> {
    let file = match File::open(folder.join(file_name(rank))) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = [0; PAGE_BYTES];
    match file.read_exact_at(&mut bytes, 0) {
        Ok(()) => Ok(decode(&bytes)),
        // Created, not yet grown to its size.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

/// The figures of ranks `0..ranks` that have a page, in order.
///
/// # Errors
/// When a page cannot be read.
pub fn read_all(folder: &Path, ranks: u32) -> io::Result<Vec<RankFigures>> {
    (0..ranks).filter_map(|rank| read(folder, rank).transpose()).collect()
}

/// Asks every rank that has a page to write a checkpoint at an agreed step and to end.
///
/// # Errors
/// When a page cannot be written.
pub fn request_stop(folder: &Path, ranks: u32) -> io::Result<()> {
    for rank in 0..ranks {
        match OpenOptions::new().write(true).open(folder.join(file_name(rank))) {
            Ok(file) => file.write_all_at(&1_u64.to_ne_bytes(), offset_of!(Page, stop_request) as u64)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Load imbalance L_max/L_mean − 1 of computing seconds; 0 without load.
pub fn imbalance(calc_seconds: impl Iterator<Item = f64> + Clone) -> f64 {
    let (count, sum) = calc_seconds.clone().fold((0.0, 0.0), |(n, s), x| (n + 1.0, s + x));
    if sum > 0.0 { calc_seconds.fold(0.0, f64::max) * count / sum - 1.0 } else { 0.0 }
}

fn decode(bytes: &[u8; PAGE_BYTES]) -> Option<RankFigures> {
    let word = |offset: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[offset..offset + 8]);
        u64::from_ne_bytes(word)
    };
    if word(offset_of!(Page, magic)) != MAGIC {
        return None;
    }
    let seconds = |offset: usize| f64::from_bits(word(offset));
    let state = State::from_word(word(offset_of!(Page, state)));
    let is_final = matches!(state, Some(State::Done | State::Failed | State::Stopped));
    let start = offset_of!(Page, message);
    let length = (word(offset_of!(Page, message_len)) as usize).min(MESSAGE_BYTES);
    let checkpoint = word(offset_of!(Page, checkpoint_step));
    Some(RankFigures {
        rank: u32::try_from(word(offset_of!(Page, rank))).ok()?,
        state,
        step: word(offset_of!(Page, step)),
        end_step: word(offset_of!(Page, end_step)),
        start_step: word(offset_of!(Page, start_step)),
        checkpoint_step: (checkpoint != u64::MAX).then_some(checkpoint),
        particles: word(offset_of!(Page, particles)),
        ghosts: word(offset_of!(Page, ghosts)),
        calc_seconds: seconds(offset_of!(Page, calc_seconds)),
        comm_seconds: seconds(offset_of!(Page, comm_seconds)),
        wait1_seconds: seconds(offset_of!(Page, wait1_seconds)),
        wait2_seconds: seconds(offset_of!(Page, wait2_seconds)),
        node_bytes: word(offset_of!(Page, bytes_received) + 8 * LEVEL_NODE),
        network_bytes: word(offset_of!(Page, bytes_received) + 8 * LEVEL_NETWORK),
        message: if is_final {
            // The rank writes the message in little-endian words, which is the order of its bytes on every
            // platform that shares memory with us.
            String::from_utf8_lossy(&bytes[start..start + length]).into_owned()
        } else {
            String::new()
        },
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    /// A page file as a rank would leave it, word by word.
    fn page(words: &[(usize, u64)]) -> [u8; PAGE_BYTES] {
        let mut bytes = [0; PAGE_BYTES];
        for (offset, word) in words {
            bytes[*offset..*offset + 8].copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    #[test]
    fn a_page_is_seen_once_its_magic_is_there_and_its_message_once_its_state_is_final() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read(folder.path(), 0).unwrap(), None);
        let file = File::create(folder.path().join(file_name(0))).unwrap();
        assert_eq!(read(folder.path(), 0).unwrap(), None);
        let mut words = vec![
            (offset_of!(Page, step), 7),
            (offset_of!(Page, calc_seconds), 1.5_f64.to_bits()),
            (offset_of!(Page, bytes_received) + 8, 99),
            (offset_of!(Page, checkpoint_step), u64::MAX),
            (offset_of!(Page, message), u64::from_le_bytes(*b"overlap!")),
            (offset_of!(Page, message_len), 8),
            (offset_of!(Page, state), State::Running as u64),
        ];
        file.write_all_at(&page(&words), 0).unwrap();
        assert_eq!(read(folder.path(), 0).unwrap(), None);
        words.push((offset_of!(Page, magic), MAGIC));
        file.write_all_at(&page(&words), 0).unwrap();
        let figures = read(folder.path(), 0).unwrap().unwrap();
        assert_eq!((figures.step, figures.calc_seconds, figures.network_bytes), (7, 1.5, 99));
        assert_eq!((figures.checkpoint_step, figures.message.as_str()), (None, ""));
        words.push((offset_of!(Page, state), State::Failed as u64));
        file.write_all_at(&page(&words), 0).unwrap();
        assert_eq!(read(folder.path(), 0).unwrap().unwrap().message, "overlap!");
    }

    #[test]
    fn a_stop_request_changes_its_own_word_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(file_name(1));
        std::fs::write(&path, page(&[(offset_of!(Page, magic), MAGIC)])).unwrap();
        request_stop(folder.path(), 3).unwrap();
        let expected = page(&[(offset_of!(Page, magic), MAGIC), (offset_of!(Page, stop_request), 1)]);
        assert_eq!(std::fs::read(path).unwrap(), expected);
    }

    #[test]
    fn imbalance_is_the_excess_of_the_slowest_over_the_mean() {
        assert!((imbalance([1.0, 1.0, 2.0].into_iter()) - 0.5).abs() < 1e-15);
        assert_eq!(imbalance([0.0, 0.0].into_iter()), 0.0);
    }
}
