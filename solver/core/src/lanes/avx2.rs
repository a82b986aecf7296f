//! Four lanes of AVX2.
#![expect(unsafe_code, reason = "x86 intrinsics; a value of the type proves that the processor has AVX2")]

use std::arch::x86_64::*;
use std::ops::{Add, Div, Mul, Sub};

use super::{Lanes, MAX_WIDTH};
use crate::record::{Load, Record};

/// Four doubles in a 256-bit register.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(pub(super) __m256d);

macro_rules! lanewise {
    ($trait:ident, $function:ident, $intrinsic:ident) => {
        impl $trait for Avx2 {
            type Output = Self;
            #[inline(always)]
            fn $function(self, other: Self) -> Self {
                // SAFETY: `self` exists, so the processor has AVX2.
                Self(unsafe { $intrinsic(self.0, other.0) })
            }
        }
    };
}
lanewise!(Add, add, _mm256_add_pd);
lanewise!(Sub, sub, _mm256_sub_pd);
lanewise!(Mul, mul, _mm256_mul_pd);
lanewise!(Div, div, _mm256_div_pd);

/// Rows into columns.
///
/// # Safety
/// The processor must have AVX2.
#[inline(always)]
unsafe fn transpose(rows: [__m256d; 4]) -> [__m256d; 4] {
    // SAFETY: the caller promises AVX2.
    unsafe {
        let a = _mm256_unpacklo_pd(rows[0], rows[1]);
        let b = _mm256_unpackhi_pd(rows[0], rows[1]);
        let c = _mm256_unpacklo_pd(rows[2], rows[3]);
        let d = _mm256_unpackhi_pd(rows[2], rows[3]);
        [
            _mm256_permute2f128_pd(a, c, 0x20),
            _mm256_permute2f128_pd(b, d, 0x20),
            _mm256_permute2f128_pd(a, c, 0x31),
            _mm256_permute2f128_pd(b, d, 0x31),
        ]
    }
}

impl Lanes for Avx2 {
    const WIDTH: usize = 4;

    #[inline(always)]
    unsafe fn splat(x: f64) -> Self {
        // SAFETY: the caller promises AVX2.
        Self(unsafe { _mm256_set1_pd(x) })
    }

    #[inline(always)]
    unsafe fn load(x: &[f64; MAX_WIDTH]) -> Self {
        // SAFETY: the caller promises AVX2; the array has at least four values.
        Self(unsafe { _mm256_loadu_pd(x.as_ptr()) })
    }

    #[inline(always)]
    unsafe fn gather(records: &[Record], index: &[u32]) -> [Self; 4] {
        // SAFETY: the caller promises AVX2 and indices in range; records are aligned to 32 bytes.
        unsafe {
            let row =
                |n: usize| _mm256_load_pd(records.get_unchecked(*index.get_unchecked(n) as usize).0.as_ptr());
            transpose([row(0), row(1), row(2), row(3)]).map(Self)
        }
    }

    #[inline(always)]
    fn store(self, out: &mut [f64; MAX_WIDTH]) {
        // SAFETY: `self` exists, so the processor has AVX2; the array has at least four values.
        unsafe { _mm256_storeu_pd(out.as_mut_ptr(), self.0) }
    }

    #[inline(always)]
    fn sqrt(self) -> Self {
        // SAFETY: `self` exists, so the processor has AVX2.
        Self(unsafe { _mm256_sqrt_pd(self.0) })
    }

    #[inline(always)]
    fn min(self, other: Self) -> Self {
        // SAFETY: `self` exists, so the processor has AVX2.
        Self(unsafe { _mm256_min_pd(self.0, other.0) })
    }

    #[inline(always)]
    fn max(self, other: Self) -> Self {
        // SAFETY: `self` exists, so the processor has AVX2.
        Self(unsafe { _mm256_max_pd(self.0, other.0) })
    }

    #[inline(always)]
    fn less(self, other: Self) -> u32 {
        // SAFETY: `self` exists, so the processor has AVX2.
        unsafe { _mm256_movemask_pd(_mm256_cmp_pd::<_CMP_LT_OQ>(self.0, other.0)) as u32 }
    }

    #[inline(always)]
    fn exceeds(self, other: Self) -> u32 {
        // SAFETY: `self` exists, so the processor has AVX2.
        unsafe { _mm256_movemask_pd(_mm256_cmp_pd::<_CMP_NLE_UQ>(self.0, other.0)) as u32 }
    }

    #[inline(always)]
    unsafe fn scatter_add(
        loads: &mut [Load],
        index: &[u32],
        count: usize,
        force: [Self; 3],
        torque: [Self; 3],
    ) {
        // SAFETY: `force` exists, so the processor has AVX2; the caller promises indices in range; loads are aligned.
        unsafe {
            let zero = _mm256_setzero_pd();
            let force = transpose([force[0].0, force[1].0, force[2].0, zero]);
            let torque = transpose([torque[0].0, torque[1].0, torque[2].0, zero]);
            for n in 0..4 {
                if n >= count {
                    break;
                }
                let load = loads.get_unchecked_mut(*index.get_unchecked(n) as usize);
                let at = load.force.0.as_mut_ptr();
                _mm256_store_pd(at, _mm256_add_pd(_mm256_load_pd(at), force[n]));
                let at = load.torque.0.as_mut_ptr();
                _mm256_store_pd(at, _mm256_add_pd(_mm256_load_pd(at), torque[n]));
            }
        }
    }
}
