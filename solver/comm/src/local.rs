//! Ranks as threads of one process, with real messages between them.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::communicator::{CommError, Communicator, Kind, Outgoing};

type Letters = HashMap<(u32, Kind), VecDeque<Vec<u8>>>;

#[derive(Default)]
struct Mailbox {
    letters: Mutex<Letters>,
    arrived: Condvar,
}

struct World {
    mailboxes: Vec<Mailbox>,
    node_of_rank: Vec<u32>,
    /// Exit code of the rank that ended the run; `RUNNING` until then.
    aborted: AtomicI32,
}

const RUNNING: i32 = i32::MIN;

/// One rank of an in-process run.
pub struct Local {
    rank: u32,
    world: Arc<World>,
}

/// Makes the communicators of a run with one rank for each entry of `node_of_rank`, which says on which node each
/// rank is taken to be.
pub fn world(node_of_rank: &[u32]) -> Vec<Local> {
    let world = Arc::new(World {
        mailboxes: node_of_rank.iter().map(|_| Mailbox::default()).collect(),
        node_of_rank: node_of_rank.to_vec(),
        aborted: AtomicI32::new(RUNNING),
    });
    (0..node_of_rank.len() as u32).map(|rank| Local { rank, world: Arc::clone(&world) }).collect()
}

/// Letters are whole or absent whatever a panicking rank did, so a poisoned lock is still good.
fn lock(mailbox: &Mailbox) -> MutexGuard<'_, Letters> {
    mailbox.letters.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Local {
    fn post(&self, kind: Kind, sends: &[Outgoing<'_>]) {
        for &(to, payload) in sends {
            let mailbox = &self.world.mailboxes[to as usize];
            lock(mailbox).entry((self.rank, kind)).or_default().push_back(payload.to_vec());
            mailbox.arrived.notify_all();
        }
    }

    fn collect(&self, kind: Kind, from: u32) -> Result<Vec<u8>, CommError> {
        let mailbox = &self.world.mailboxes[self.rank as usize];
        let mut letters = lock(mailbox);
        loop {
            let code = self.world.aborted.load(Ordering::Acquire);
            if code != RUNNING {
                return Err(CommError::Aborted(code));
            }
            if let Some(letter) = letters.get_mut(&(from, kind)).and_then(VecDeque::pop_front) {
                return Ok(letter);
            }
            letters = mailbox.arrived.wait(letters).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn end(&self, code: i32) {
        // The first code counts: later ones are consequences.
        let _ = self.world.aborted.compare_exchange(RUNNING, code, Ordering::AcqRel, Ordering::Acquire);
        for mailbox in &self.world.mailboxes {
            // Under the lock, so that a rank between its check and its wait cannot miss it.
            let _letters = lock(mailbox);
            mailbox.arrived.notify_all();
        }
    }
}

impl Communicator for Local {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.world.mailboxes.len() as u32
    }

    fn node_of_rank(&self) -> &[u32] {
        &self.world.node_of_rank
    }

    fn exchange(
        &mut self,
        kind: Kind,
        sends: &[Outgoing<'_>],
        receives: &mut [(u32, &mut [u8])],
    ) -> Result<(), CommError> {
        self.post(kind, sends);
        for (from, buffer) in receives {
            let letter = self.collect(kind, *from)?;
            if letter.len() != buffer.len() {
                return Err(CommError::Length {
                    rank: self.rank,
                    from: *from,
                    kind,
                    found: letter.len(),
                    expected: buffer.len(),
                });
            }
            buffer.copy_from_slice(&letter);
        }
        Ok(())
    }

    fn exchange_sized(
        &mut self,
        kind: Kind,
        sends: &[Outgoing<'_>],
        sources: &[u32],
    ) -> Result<Vec<Vec<u8>>, CommError> {
        self.post(kind, sends);
        sources.iter().map(|&from| self.collect(kind, from)).collect()
    }

    fn abort(&mut self, code: i32) {
        self.end(code);
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.end(70);
        }
    }
}
