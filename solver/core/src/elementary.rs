//! Elementary functions from the four operations and the square root, so that their bits are the same on every
//! platform. They serve the set-up of contact laws only; speed does not matter.

/// e^x for x <= 0, by its series at x/256 and eight squarings; relative error below 1e-13.
pub(crate) fn exp(x: f64) -> f64 {
    let small = x / 256.0;
    if small < -2.9 {
        return 0.0; // below the smallest normal double
    }
    let mut term = 1.0;
    let mut sum = 1.0;
    for n in 1..32 {
        term *= small / f64::from(n);
        sum += term;
    }
    for _ in 0..8 {
        sum *= sum;
    }
    sum
}

/// ln(x) for 0 < x <= 1, by Newton's method on [`exp`].
pub(crate) fn ln(x: f64) -> f64 {
    // exp is convex, so iterates that start left of the root stay left of it.
    let mut y = 0.0;
    let mut scale = x;
    while scale < 0.5 {
        scale *= 2.0;
        y -= std::f64::consts::LN_2;
    }
    for _ in 0..8 {
        y += x / exp(y) - 1.0;
    }
    y
}

/// acos(z)/sqrt(1 - z^2), continued to acosh(z)/sqrt(z^2 - 1) for z > 1 (one analytic function of z > -1).
///
/// From Viete's halving: phi/sin(phi) = (phi/2)/sin(phi/2) / cos(phi/2), cos(phi/2) = sqrt((1 + cos(phi))/2).
pub(crate) fn angle_over_sine(z: f64) -> f64 {
    let mut cosine = z;
    let mut product = 1.0;
    for _ in 0..28 {
        cosine = f64::sqrt(0.5 * (1.0 + cosine));
        product /= cosine;
    }
    product
}

/// Fifth root of x > 0: a guess from the exponent's bits, then Newton's method. Zero for zero.
///
/// Not inlined: it is the rare branch of kernels that need their registers.
#[inline(never)]
pub(crate) fn fifth_root(x: f64) -> f64 {
    if x <= 0.0 || !x.is_finite() {
        return x;
    }
    // One fifth of the biased exponent and mantissa, as if they were a logarithm: within 3 % of the root.
    const BIAS: u64 = 1023 << 52;
    let mut y = f64::from_bits(x.to_bits() / 5 + BIAS / 5 * 4);
    for _ in 0..5 {
        let square = y * y;
        y -= 0.2 * (y - x / (square * square));
    }
    y
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elementary_functions_agree_with_the_library() {
        for k in 0..200 {
            let x = -0.37 * f64::from(k);
            assert!((exp(x) / x.exp() - 1.0).abs() < 1e-12, "exp({x})");
            let u = 1.0 / (1.0 + 0.31 * f64::from(k));
            assert!((ln(u) - u.ln()).abs() < 1e-13, "ln({u})");
        }
        for z in [-0.5, 0.0, 0.3, 0.9, 0.999, 1.001, 2.0, 50.0f64] {
            let library =
                if z < 1.0 { z.acos() / (1.0 - z * z).sqrt() } else { z.acosh() / (z * z - 1.0).sqrt() };
            assert!((angle_over_sine(z) / library - 1.0).abs() < 1e-13, "angle_over_sine({z})");
        }
        assert!((angle_over_sine(1.0) - 1.0).abs() < 1e-15);
    }

    #[test]
    fn fifth_root_is_exact_to_rounding_over_the_range_of_doubles() {
        for e in -300..300 {
            let x = 1.37 * 10f64.powi(e);
            let y = fifth_root(x);
            assert!((y * y * y * y * y / x - 1.0).abs() < 1e-14, "fifth_root({x})");
        }
        assert_eq!(fifth_root(0.0), 0.0);
    }
}
