//! A fingerprint of the state that does not depend on the order of particles.

use crate::particles::Particles;
use crate::record::Record;

/// Sum over owned particles (wrapping, so that ranks can add their parts) of a 128-bit hash of id and of all bits of
/// position, velocity and spin. One changed bit changes it.
pub fn state_hash(particles: &Particles) -> u128 {
    (0..particles.owned).fold(0, |sum: u128, i| {
        let hash = particle_hash(
            particles.id[i],
            &particles.position[i],
            &particles.velocity[i],
            &particles.spin[i],
        );
        sum.wrapping_add(hash)
    })
}

fn particle_hash(id: u64, position: &Record, velocity: &Record, spin: &Record) -> u128 {
    // Two independent 64-bit chains; constants are the fractional digits of pi.
    let mut low: u64 = 0x243f_6a88_85a3_08d3;
    let mut high: u64 = 0x1319_8a2e_0370_7344;
    let numbers = [position, velocity, spin];
    let words = numbers.iter().flat_map(|r| r.0[..3].iter().map(|x| x.to_bits()));
    for word in std::iter::once(id).chain(words) {
        low = mix(low ^ word);
        high = mix(high.rotate_left(23) ^ word.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    }
    u128::from(high) << 64 | u128::from(low)
}

/// The finaliser of SplitMix64 (Steele, Lea and Flood 2014): a bijection in which every input bit moves every output
/// bit.
fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
