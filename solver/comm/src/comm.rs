//! Counted messages, and collectives made of them.

use bytemuck::Pod;

use crate::communicator::{CommError, Communicator, Kind, Outgoing};
use crate::traffic::{LEVEL_NETWORK, LEVEL_NODE, Traffic};

/// A rank's end of the run's communication: counts every message and offers collectives.
///
/// Collectives run over one tree: a binomial tree of the nodes' lowest ranks, and under each of these a binomial
/// tree of its node. A partial result crosses the network once for each node and direction, and, as the tree is
/// ours, its bytes are counted where they are sent, like those of any other message. Partial results are combined
/// in the tree's order, which is fixed, but depends on the number of ranks: combine only what is exact (integers,
/// minima, maxima).
pub struct Comm {
    inner: Box<dyn Communicator>,
    parent: Option<u32>,
    children: Vec<u32>,
    levels: Vec<usize>,
    traffic: Traffic,
}

/// Parent and children, in a binomial tree over `members`, of the member at `index`; the first is the root.
fn binomial(members: &[u32], index: usize) -> (Option<u32>, Vec<u32>) {
    let mut children = Vec::new();
    let mut bit = 1;
    while bit < members.len() {
        if index & bit != 0 {
            return (Some(members[index & !bit]), children);
        }
        if let Some(&child) = members.get(index | bit) {
            children.push(child);
        }
        bit <<= 1;
    }
    (None, children)
}

impl Comm {
    /// Wraps a communicator.
    pub fn new(inner: Box<dyn Communicator>) -> Self {
        let me = inner.rank();
        let nodes = inner.node_of_rank();
        let own = nodes[me as usize];
        let members: Vec<u32> = (0..inner.size()).filter(|&r| nodes[r as usize] == own).collect();
        let place = members.iter().position(|&r| r == me).unwrap_or(0);
        let (mut parent, mut children) = binomial(&members, place);
        if parent.is_none() {
            let mut leaders: Vec<u32> = Vec::new();
            for r in 0..inner.size() {
                if !leaders.iter().any(|&l| nodes[l as usize] == nodes[r as usize]) {
                    leaders.push(r);
                }
            }
            let place = leaders.iter().position(|&r| r == me).unwrap_or(0);
            let (up, down) = binomial(&leaders, place);
            parent = up;
            // Far children first: they wait longest.
            children.splice(0..0, down);
        }
        let level = |&n: &u32| if n == own { LEVEL_NODE } else { LEVEL_NETWORK };
        let levels = nodes.iter().map(level).collect();
        Self { inner, parent, children, levels, traffic: Traffic::default() }
    }

    /// Number of this rank.
    pub fn rank(&self) -> u32 {
        self.inner.rank()
    }

    /// Ranks in the run.
    pub fn size(&self) -> u32 {
        self.inner.size()
    }

    /// Index of the node that each rank runs on.
    pub fn node_of_rank(&self) -> &[u32] {
        self.inner.node_of_rank()
    }

    /// Locality level of messages between this rank and `rank`.
    pub fn level(&self, rank: u32) -> usize {
        self.levels[rank as usize]
    }

    /// What was sent and received so far.
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    pub(crate) fn traffic_mut(&mut self) -> &mut Traffic {
        &mut self.traffic
    }

    /// Ends all ranks with `code`; see [`Communicator::abort`].
    pub fn abort(&mut self, code: i32) {
        self.inner.abort(code);
    }

    fn count_sent(&mut self, sends: &[Outgoing<'_>]) {
        for (to, payload) in sends {
            let level = self.levels[*to as usize];
            self.traffic.bytes_sent[level] += payload.len() as u64;
            self.traffic.messages_sent[level] += 1;
        }
    }

    fn count_received(&mut self, from: u32, bytes: usize) {
        let level = self.levels[from as usize];
        self.traffic.bytes_received[level] += bytes as u64;
        self.traffic.messages_received[level] += 1;
    }

    /// [`Communicator::exchange`], counted.
    ///
    /// # Errors
    /// Those of the communicator.
    pub fn exchange(
        &mut self,
        kind: Kind,
        sends: &[Outgoing<'_>],
        receives: &mut [(u32, &mut [u8])],
    ) -> Result<(), CommError> {
        self.inner.exchange(kind, sends, receives)?;
        self.count_sent(sends);
        for (from, buffer) in receives.iter() {
            self.count_received(*from, buffer.len());
        }
        Ok(())
    }

    /// [`Communicator::exchange_sized`], counted.
    ///
    /// # Errors
    /// Those of the communicator.
    pub fn exchange_sized(
        &mut self,
        kind: Kind,
        sends: &[Outgoing<'_>],
        sources: &[u32],
    ) -> Result<Vec<Vec<u8>>, CommError> {
        let received = self.inner.exchange_sized(kind, sends, sources)?;
        self.count_sent(sends);
        for (&from, buffer) in sources.iter().zip(&received) {
            self.count_received(from, buffer.len());
        }
        Ok(received)
    }

    /// Combines `values` element by element over all ranks; every rank gets the result.
    ///
    /// # Errors
    /// Those of the communicator.
    pub fn all_reduce<T: Pod>(
        &mut self,
        values: &mut [T],
        combine: impl Fn(T, T) -> T,
    ) -> Result<(), CommError> {
        if self.size() == 1 {
            return Ok(());
        }
        let mut partial = values.to_vec();
        for child in self.children.clone() {
            self.exchange(Kind::Collective, &[], &mut [(child, bytemuck::cast_slice_mut(&mut partial))])?;
            for (value, other) in values.iter_mut().zip(&partial) {
                *value = combine(*value, *other);
            }
        }
        if let Some(parent) = self.parent {
            self.exchange(Kind::Collective, &[(parent, bytemuck::cast_slice(values))], &mut [])?;
            self.exchange(Kind::Collective, &[], &mut [(parent, bytemuck::cast_slice_mut(values))])?;
        }
        let result: &[u8] = bytemuck::cast_slice(values);
        let down: Vec<Outgoing<'_>> = self.children.iter().map(|&c| (c, result)).collect();
        self.exchange(Kind::Collective, &down, &mut [])
    }

    /// Sums over all ranks, wrapping.
    ///
    /// # Errors
    /// Those of the communicator.
    pub fn sum(&mut self, values: &mut [u64]) -> Result<(), CommError> {
        self.all_reduce(values, u64::wrapping_add)
    }

    /// Largest values over all ranks.
    ///
    /// # Errors
    /// Those of the communicator.
    pub fn max(&mut self, values: &mut [u64]) -> Result<(), CommError> {
        self.all_reduce(values, u64::max)
    }

    /// Waits until every rank has come here.
    ///
    /// # Errors
    /// Those of the communicator.
    pub fn barrier(&mut self) -> Result<(), CommError> {
        self.all_reduce(&mut [0u8], |a, _| a)
    }

    /// Gives every rank the `bytes` of rank 0.
    ///
    /// # Errors
    /// Those of the communicator.
    pub fn broadcast(&mut self, bytes: Vec<u8>) -> Result<Vec<u8>, CommError> {
        let bytes = match self.parent {
            Some(parent) => self.exchange_sized(Kind::Collective, &[], &[parent])?.swap_remove(0),
            None => bytes,
        };
        let down: Vec<Outgoing<'_>> = self.children.iter().map(|&c| (c, bytes.as_slice())).collect();
        self.exchange_sized(Kind::Collective, &down, &[])?;
        Ok(bytes)
    }

    /// Brings every rank's bytes to rank 0, in rank order; the others get `None`.
    ///
    /// # Errors
    /// Those of the communicator.
    pub fn gather(&mut self, bytes: Vec<u8>) -> Result<Option<Vec<Vec<u8>>>, CommError> {
        if self.rank() != 0 {
            self.exchange_sized(Kind::Gather, &[(0, &bytes)], &[])?;
            return Ok(None);
        }
        let others: Vec<u32> = (1..self.size()).collect();
        let mut parts = self.exchange_sized(Kind::Gather, &[], &others)?;
        parts.insert(0, bytes);
        Ok(Some(parts))
    }
}
