//! Vectors of contacts: the same arithmetic in 4 lanes of plain Rust, 4 of AVX2 or 8 of AVX-512.
//!
//! Every operation here is one correctly rounded IEEE operation per lane, so all kernels give the same bits.
//! `min` and `max` are written as the x86 instructions define them: the second operand if either is not a number.

use std::ops::{Add, Div, Mul, Sub};

use crate::record::{Load, Record};

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;

#[cfg(target_arch = "x86_64")]
pub(crate) use self::{avx2::Avx2, avx512::Avx512};

/// Most lanes that any kernel has.
pub(crate) const MAX_WIDTH: usize = 8;

/// Which instructions evaluate contacts. All give the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel(pub(crate) Instructions);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Instructions {
    Portable,
    Avx2,
    Avx512,
}

impl Kernel {
    /// Plain Rust, for every processor.
    pub const PORTABLE: Self = Self(Instructions::Portable);

    /// The widest kernel that this processor has.
    pub fn detect() -> Self {
        Self::avx512().or_else(Self::avx2).unwrap_or(Self::PORTABLE)
    }

    /// The AVX2 kernel, if this processor has it.
    pub fn avx2() -> Option<Self> {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            return Some(Self(Instructions::Avx2));
        }
        None
    }

    /// The AVX-512 kernel, if this processor has it.
    pub fn avx512() -> Option<Self> {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx2") {
            return Some(Self(Instructions::Avx512));
        }
        None
    }

    /// The kernel called `name` (portable, avx2 or avx512), if this processor has it.
    pub fn by_name(name: &str) -> Option<Self> {
        match name {
            "portable" => Some(Self::PORTABLE),
            "avx2" => Self::avx2(),
            "avx512" => Self::avx512(),
            _ => None,
        }
    }

    /// Name as [`Kernel::by_name`] takes it.
    pub fn name(self) -> &'static str {
        match self.0 {
            Instructions::Portable => "portable",
            Instructions::Avx2 => "avx2",
            Instructions::Avx512 => "avx512",
        }
    }
}

/// One double per lane.
///
/// The functions that make a value are unsafe because they need the instructions of the implementing type; who has a
/// value has them, so the others are safe.
#[expect(unsafe_code, reason = "vectors may only be made where the processor has their instructions")]
pub(crate) trait Lanes:
    Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self>
{
    /// Number of lanes, at most [`MAX_WIDTH`].
    const WIDTH: usize;

    /// `x` in every lane.
    ///
    /// # Safety
    /// The processor must have the type's instructions.
    unsafe fn splat(x: f64) -> Self;

    /// The first values of `x`.
    ///
    /// # Safety
    /// The processor must have the type's instructions.
    unsafe fn load(x: &[f64; MAX_WIDTH]) -> Self;

    /// Transposed records: lane n of result k is value k of `records[index[n]]`.
    ///
    /// # Safety
    /// The processor must have the type's instructions, `index` at least `WIDTH` elements, all below
    /// `records.len()`.
    unsafe fn gather(records: &[Record], index: &[u32]) -> [Self; 4];

    /// Lanes into memory.
    fn store(self, out: &mut [f64; MAX_WIDTH]);
    /// Square root.
    fn sqrt(self) -> Self;
    /// The smaller; `other` if either is not a number.
    fn min(self, other: Self) -> Self;
    /// The larger; `other` if either is not a number.
    fn max(self, other: Self) -> Self;
    /// Bit n is set if lane n is less than that of `other`.
    fn less(self, other: Self) -> u32;
    /// Bit n is set unless lane n is at most that of `other`; set for what is not a number.
    fn exceeds(self, other: Self) -> u32;

    /// Adds lane n of force and torque to `loads[index[n]]`, one lane after the other, for the first `count` lanes.
    ///
    /// # Safety
    /// `index` must have at least `count` elements, all below `loads.len()`, and `count <= WIDTH`.
    unsafe fn scatter_add(
        loads: &mut [Load],
        index: &[u32],
        count: usize,
        force: [Self; 3],
        torque: [Self; 3],
    );
}

/// Four lanes in plain Rust.
#[derive(Clone, Copy)]
pub(crate) struct Portable([f64; 4]);

macro_rules! lanewise {
    ($trait:ident, $function:ident, $operator:tt) => {
        impl $trait for Portable {
            type Output = Self;
            #[inline(always)]
            fn $function(self, other: Self) -> Self {
                Self(std::array::from_fn(|n| self.0[n] $operator other.0[n]))
            }
        }
    };
}
lanewise!(Add, add, +);
lanewise!(Sub, sub, -);
lanewise!(Mul, mul, *);
lanewise!(Div, div, /);

#[expect(unsafe_code, reason = "unchecked indices, proved when the list was built")]
impl Lanes for Portable {
    const WIDTH: usize = 4;

    #[inline(always)]
    unsafe fn splat(x: f64) -> Self {
        Self([x; 4])
    }

    #[inline(always)]
    unsafe fn load(x: &[f64; MAX_WIDTH]) -> Self {
        Self([x[0], x[1], x[2], x[3]])
    }

    #[inline(always)]
    unsafe fn gather(records: &[Record], index: &[u32]) -> [Self; 4] {
        // SAFETY: the caller promises indices in range.
        let rows: [Record; 4] =
            std::array::from_fn(|n| unsafe { *records.get_unchecked(*index.get_unchecked(n) as usize) });
        std::array::from_fn(|k| Self(rows.map(|row| row.0[k])))
    }

    #[inline(always)]
    fn store(self, out: &mut [f64; MAX_WIDTH]) {
        out[..4].copy_from_slice(&self.0);
    }

    #[inline(always)]
    fn sqrt(self) -> Self {
        Self(self.0.map(f64::sqrt))
    }

    #[inline(always)]
    fn min(self, other: Self) -> Self {
        Self(std::array::from_fn(|n| if self.0[n] < other.0[n] { self.0[n] } else { other.0[n] }))
    }

    #[inline(always)]
    fn max(self, other: Self) -> Self {
        Self(std::array::from_fn(|n| if self.0[n] > other.0[n] { self.0[n] } else { other.0[n] }))
    }

    #[inline(always)]
    fn less(self, other: Self) -> u32 {
        (0..4).fold(0, |bits, n| bits | u32::from(self.0[n] < other.0[n]) << n)
    }

    #[inline(always)]
    fn exceeds(self, other: Self) -> u32 {
        !(0..4).fold(0, |bits, n| bits | u32::from(self.0[n] <= other.0[n]) << n) & 0xf
    }

    #[inline(always)]
    unsafe fn scatter_add(
        loads: &mut [Load],
        index: &[u32],
        count: usize,
        force: [Self; 3],
        torque: [Self; 3],
    ) {
        for (n, i) in index.iter().enumerate().take(count) {
            // SAFETY: the caller promises indices in range.
            let load = unsafe { loads.get_unchecked_mut(*i as usize) };
            for k in 0..3 {
                load.force.0[k] += force[k].0[n];
                load.torque.0[k] += torque[k].0[n];
            }
        }
    }
}
