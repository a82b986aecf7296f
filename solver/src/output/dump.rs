//! LAMMPS text dumps, which OVITO and LAMMPS's `read_dump` open.

use std::fmt::Write;

use super::Shown;

/// One frame of a dump at `step`, in the box `min`..`max` [m] with its periodic axes. Types are material index + 1;
/// numbers are the shortest that read back to the same double.
pub fn dump(step: u64, min: [f64; 3], max: [f64; 3], periodic: [bool; 3], particles: &[Shown]) -> Vec<u8> {
    let mut text = String::with_capacity(particles.len() * 160 + 256);
    let flags = periodic.map(|axis| if axis { "pp" } else { "ff" }).join(" ");
    // Writing to a String cannot fail.
    let _ = writeln!(text, "ITEM: TIMESTEP\n{step}\nITEM: NUMBER OF ATOMS\n{}", particles.len());
    let _ = writeln!(text, "ITEM: BOX BOUNDS {flags}");
    for axis in 0..3 {
        let _ = writeln!(text, "{} {}", min[axis], max[axis]);
    }
    text.push_str("ITEM: ATOMS id type x y z radius vx vy vz omegax omegay omegaz proc\n");
    for particle in particles {
        let [x, y, z] = particle.position;
        let [vx, vy, vz] = particle.velocity;
        let [wx, wy, wz] = particle.spin;
        let (id, kind, radius) = (particle.id, particle.material + 1, particle.radius);
        let rank = particle.rank;
        let _ = writeln!(
            text,
            "{id} {kind} {x:e} {y:e} {z:e} {radius:e} {vx:e} {vy:e} {vz:e} {wx:e} {wy:e} {wz:e} {rank}"
        );
    }
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_lammps_headers_and_numbers_that_read_back_exactly() {
        let particle = Shown {
            id: 5,
            position: [0.1 + 0.2, -1e-7, 3.0],
            radius: 0.004,
            velocity: [1.0 / 3.0, 0.0, -2.0],
            spin: [0.0, 1e300, 0.0],
            rank: 3,
            material: 0,
        };
        let text = String::from_utf8(dump(12, [0.0; 3], [1.0, 2.0, 3.0], [true, false, false], &[particle]))
            .unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[..4], ["ITEM: TIMESTEP", "12", "ITEM: NUMBER OF ATOMS", "1"]);
        assert_eq!(lines[4], "ITEM: BOX BOUNDS pp ff ff");
        assert_eq!(lines[6], "0 2");
        let values: Vec<f64> = lines[9].split(' ').map(|value| value.parse().unwrap()).collect();
        let expected = [5.0, 1.0, 0.1 + 0.2, -1e-7, 3.0, 0.004, 1.0 / 3.0, 0.0, -2.0, 0.0, 1e300, 0.0, 3.0];
        assert_eq!(values, expected);
        assert_eq!(lines.len(), 10);
    }
}
