//! Restitution of the damping laws and its inverse.
//!
//! Damping that grows as overlap^(1/4) (Tsuji, Tanaka and Ishida 1992) turns the Hertz contact into a linear
//! oscillator in overlap^(5/4) with damping ratio zeta = alpha/sqrt(5) (Antypov and Elliott 2011), so restitution
//! does not depend on speed and has a closed form, with attraction and without. With a constant coefficient it
//! depends on one number, chat = c / (m*^(3/5) k^(2/5) v^(1/5)), through an ordinary differential equation.

use crate::elementary::{angle_over_sine, exp, ln};

/// Restitution of the linear oscillator with damping ratio `zeta`.
///
/// With `clip` the force never attracts: e = exp(-(pi - 2 theta) tan theta), theta = asin zeta, continued beyond
/// zeta = 1. Without, contact ends at overlap zero: e = exp(-pi zeta / sqrt(1 - zeta^2)), zero from zeta = 1 on.
pub fn restitution_of_ratio(zeta: f64, clip: bool) -> f64 {
    if clip {
        exp(-2.0 * zeta * angle_over_sine(zeta))
    } else if zeta < 1.0 {
        exp(-std::f64::consts::PI * zeta / f64::sqrt(1.0 - zeta * zeta))
    } else {
        0.0
    }
}

/// Damping ratio zeta that gives `restitution` in (0, 1], to 1e-12: the inverse of [`restitution_of_ratio`].
pub fn ratio_of_restitution(restitution: f64, clip: bool) -> f64 {
    if !clip {
        let log = ln(restitution);
        return -log / f64::sqrt(std::f64::consts::PI * std::f64::consts::PI + log * log);
    }
    let mut high = 1.0;
    while restitution_of_ratio(high, true) > restitution {
        high *= 2.0;
    }
    bisect(0.0, high, |zeta| restitution_of_ratio(zeta, true) > restitution)
}

/// Restitution of a Hertz contact with constant damping coefficient, as a function of
/// chat = c / (m*^(3/5) k^(2/5) v^(1/5)) (integrated numerically, error below 1e-8).
pub fn restitution_of_constant(chat: f64, clip: bool) -> f64 {
    // Overlap x in units of (m* v^2/k)^(2/5), time in units of that over v: x'' = -x^(3/2) - chat x'.
    // The independent variable runs so that the weak singularity of x^(3/2) at first touch costs no order:
    // t = s^2 makes the solution smooth in s there.
    let force = |x: f64, u: f64| {
        let x = x.max(0.0);
        x * x.sqrt() + chat * u
    };
    let over = |x: f64, u: f64| if clip { force(x, u) <= 0.0 } else { x <= 0.0 };
    let slope = |s: f64, [x, u]: [f64; 2]| [2.0 * s * u, -2.0 * s * force(x, u)];
    let step = |s: f64, y: [f64; 2], h: f64| {
        let add = |a: [f64; 2], b: [f64; 2], f: f64| [a[0] + f * b[0], a[1] + f * b[1]];
        let k1 = slope(s, y);
        let k2 = slope(s + 0.5 * h, add(y, k1, 0.5 * h));
        let k3 = slope(s + 0.5 * h, add(y, k2, 0.5 * h));
        let k4 = slope(s + h, add(y, k3, h));
        [0, 1].map(|n| y[n] + h / 6.0 * (k1[n] + 2.0 * (k2[n] + k3[n]) + k4[n]))
    };
    let (mut s, mut y) = (0.0, [0.0, 1.0]);
    let mut h = 1.0 / 1024.0;
    loop {
        let next = step(s, y, h);
        // The first steps are inside contact by construction: force(0, 1) = chat >= 0, and x grows.
        if next[1] < 0.0 && over(next[0], next[1]) {
            if h < 1e-11 {
                return -next[1];
            }
            h *= 0.5; // close in on the end of contact
        } else {
            s += h;
            y = next;
            if s > 64.0 {
                return 0.0; // so overdamped that it never separates
            }
        }
    }
}

/// The chat that gives `restitution` in (0, 1], to 1e-6 in restitution and better: the inverse of
/// [`restitution_of_constant`].
pub fn constant_of_restitution(restitution: f64, clip: bool) -> f64 {
    let mut high = 1.0;
    while restitution_of_constant(high, clip) > restitution {
        high *= 2.0;
    }
    bisect(0.0, high, |chat| restitution_of_constant(chat, clip) > restitution)
}

/// The point in `[low, high]` where `left` turns from true to false, to the last bits.
fn bisect(mut low: f64, mut high: f64, left: impl Fn(f64) -> bool) -> f64 {
    for _ in 0..48 {
        let middle = 0.5 * (low + high);
        if left(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    0.5 * (low + high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratio_inverts_restitution_to_1e_12() {
        for clip in [true, false] {
            for k in 1..=100 {
                let e = f64::from(k) / 100.0;
                let back = restitution_of_ratio(ratio_of_restitution(e, clip), clip);
                assert!((back - e).abs() < 1e-12, "clip {clip}: {e} came back as {back}");
            }
        }
    }

    #[test]
    fn clipping_an_unclipped_coefficient_gives_the_known_wrong_values() {
        // Measured with LIGGGHTS, limitForce on: nominal 0.9, 0.5, 0.2.
        for (nominal, found) in [(0.9, 0.90203), (0.5, 0.55027), (0.2, 0.32481)] {
            let e = restitution_of_ratio(ratio_of_restitution(nominal, false), true);
            assert!((e - found).abs() < 1e-4, "{nominal}: {e}, expected {found}");
        }
    }

    #[test]
    fn constant_coefficient_follows_the_table() {
        let table = [
            (0.01, 0.9823, 0.9825),
            (0.02, 0.9648, 0.9656),
            (0.05, 0.9137, 0.9176),
            (0.1, 0.8333, 0.8449),
            (0.2, 0.6886, 0.7214),
            (0.3, 0.5625, 0.6207),
            (0.4, 0.4527, 0.5374),
            (0.5, 0.3569, 0.4680),
            (0.6, 0.2735, 0.4097),
            (0.8, 0.1387, 0.3185),
            (1.0, 0.0413, 0.2518),
        ];
        for (chat, unclipped, clipped) in table {
            let found = restitution_of_constant(chat, false);
            assert!((found - unclipped).abs() < 1e-4, "chat {chat}: {found}, expected {unclipped}");
            let found = restitution_of_constant(chat, true);
            assert!((found - clipped).abs() < 1e-4, "chat {chat} clipped: {found}, expected {clipped}");
        }
        let slope = (1.0 - restitution_of_constant(1e-4, false)) / 1e-4;
        assert!((slope - 1.7878).abs() < 1e-3, "slope {slope}");
    }

    #[test]
    fn constant_inverts_restitution_to_1e_6() {
        for clip in [true, false] {
            for e in [0.05, 0.2, 0.5, 0.9, 0.99] {
                let back = restitution_of_constant(constant_of_restitution(e, clip), clip);
                assert!((back - e).abs() < 1e-6, "clip {clip}: {e} came back as {back}");
            }
        }
    }
}
