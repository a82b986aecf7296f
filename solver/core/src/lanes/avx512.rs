//! Eight lanes of AVX-512; records are moved as two halves of AVX2.
#![expect(unsafe_code, reason = "x86 intrinsics; a value of the type proves that the processor has AVX-512")]

use std::arch::x86_64::*;
use std::ops::{Add, Div, Mul, Sub};

use super::{Avx2, Lanes, MAX_WIDTH};
use crate::record::{Load, Record};

/// Eight doubles in a 512-bit register.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(__m512d);

macro_rules! lanewise {
    ($trait:ident, $function:ident, $intrinsic:ident) => {
        impl $trait for Avx512 {
            type Output = Self;
            #[inline(always)]
            fn $function(self, other: Self) -> Self {
                // SAFETY: `self` exists, so the processor has AVX-512.
                Self(unsafe { $intrinsic(self.0, other.0) })
            }
        }
    };
}
lanewise!(Add, add, _mm512_add_pd);
lanewise!(Sub, sub, _mm512_sub_pd);
lanewise!(Mul, mul, _mm512_mul_pd);
lanewise!(Div, div, _mm512_div_pd);

impl Avx512 {
    #[inline(always)]
    fn low(self) -> Avx2 {
        // SAFETY: `self` exists, so the processor has AVX-512.
        Avx2(unsafe { _mm512_castpd512_pd256(self.0) })
    }

    #[inline(always)]
    fn high(self) -> Avx2 {
        // SAFETY: `self` exists, so the processor has AVX-512.
        Avx2(unsafe { _mm512_extractf64x4_pd::<1>(self.0) })
    }
}

impl Lanes for Avx512 {
    const WIDTH: usize = 8;

    #[inline(always)]
    unsafe fn splat(x: f64) -> Self {
        // SAFETY: the caller promises AVX-512.
        Self(unsafe { _mm512_set1_pd(x) })
    }

    #[inline(always)]
    unsafe fn load(x: &[f64; MAX_WIDTH]) -> Self {
        // SAFETY: the caller promises AVX-512; the array has eight values.
        Self(unsafe { _mm512_loadu_pd(x.as_ptr()) })
    }

    #[inline(always)]
    unsafe fn gather(records: &[Record], index: &[u32]) -> [Self; 4] {
        // SAFETY: the caller promises AVX-512 and AVX2, eight indices, and that they are in range.
        unsafe {
            let low = Avx2::gather(records, index);
            let high = Avx2::gather(records, index.get_unchecked(4..));
            std::array::from_fn(|k| {
                Self(_mm512_insertf64x4::<1>(_mm512_castpd256_pd512(low[k].0), high[k].0))
            })
        }
    }

    #[inline(always)]
    fn store(self, out: &mut [f64; MAX_WIDTH]) {
        // SAFETY: `self` exists, so the processor has AVX-512; the array has eight values.
        unsafe { _mm512_storeu_pd(out.as_mut_ptr(), self.0) }
    }

    #[inline(always)]
    fn sqrt(self) -> Self {
        // SAFETY: `self` exists, so the processor has AVX-512.
        Self(unsafe { _mm512_sqrt_pd(self.0) })
    }

    #[inline(always)]
    fn min(self, other: Self) -> Self {
        // SAFETY: `self` exists, so the processor has AVX-512.
        Self(unsafe { _mm512_min_pd(self.0, other.0) })
    }

    #[inline(always)]
    fn max(self, other: Self) -> Self {
        // SAFETY: `self` exists, so the processor has AVX-512.
        Self(unsafe { _mm512_max_pd(self.0, other.0) })
    }

    #[inline(always)]
    fn less(self, other: Self) -> u32 {
        // SAFETY: `self` exists, so the processor has AVX-512.
        u32::from(unsafe { _mm512_cmp_pd_mask::<_CMP_LT_OQ>(self.0, other.0) })
    }

    #[inline(always)]
    fn exceeds(self, other: Self) -> u32 {
        // SAFETY: `self` exists, so the processor has AVX-512.
        u32::from(unsafe { _mm512_cmp_pd_mask::<_CMP_NLE_UQ>(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn scatter_add(
        loads: &mut [Load],
        index: &[u32],
        count: usize,
        force: [Self; 3],
        torque: [Self; 3],
    ) {
        // SAFETY: passed on from the caller; the second half is used only if there are more than four lanes.
        unsafe {
            Avx2::scatter_add(loads, index, count.min(4), force.map(Self::low), torque.map(Self::low));
            if count > 4 {
                let (force, torque) = (force.map(Self::high), torque.map(Self::high));
                Avx2::scatter_add(loads, index.get_unchecked(4..), count - 4, force, torque);
            }
        }
    }
}
