//! VTK's unstructured grids: one vertex per particle, arrays appended raw, little endian. ParaView shows them as
//! spheres with the `Point Gaussian` representation or a glyph scaled by twice the radius.

use std::fmt::Write;

use super::Shown;

/// Arrays of a particle: name, VTK type, components.
const POINT_ARRAYS: [(&str, &str, usize); 7] = [
    ("id", "Int64", 1),
    ("radius", "Float64", 1),
    ("velocity", "Float64", 3),
    ("spin", "Float64", 3),
    ("speed", "Float64", 1),
    ("rank", "Int32", 1),
    ("material", "Int32", 1),
];

/// A VTU file of particles: points, and `id`, `radius`, `velocity`, `spin`, `speed`, `rank`, `material` at them.
pub fn vtu(particles: &[Shown]) -> Vec<u8> {
    let n = particles.len();
    let mut head = String::from(
        "<?xml version=\"1.0\"?>\n<VTKFile type=\"UnstructuredGrid\" version=\"1.0\" byte_order=\"LittleEndian\" \
         header_type=\"UInt64\">\n<UnstructuredGrid>\n",
    );
    let mut data = Vec::with_capacity(n * 150 + 1024);
    // Writing to a String cannot fail.
    let _ =
        writeln!(head, "<Piece NumberOfPoints=\"{n}\" NumberOfCells=\"{n}\">\n<PointData Scalars=\"speed\">");
    for (name, kind, components) in POINT_ARRAYS {
        array(&mut head, name, kind, components, data.len());
        append(&mut data, particles, |particle, out| match name {
            "id" => out.extend((particle.id as i64).to_le_bytes()),
            "radius" => out.extend(particle.radius.to_le_bytes()),
            "velocity" => particle.velocity.iter().for_each(|x| out.extend(x.to_le_bytes())),
            "spin" => particle.spin.iter().for_each(|x| out.extend(x.to_le_bytes())),
            "speed" => out.extend(particle.speed().to_le_bytes()),
            "rank" => out.extend((particle.rank as i32).to_le_bytes()),
            _ => out.extend(i32::from(particle.material).to_le_bytes()),
        });
    }
    head.push_str("</PointData>\n<Points>\n");
    array(&mut head, "Points", "Float64", 3, data.len());
    append(&mut data, particles, |particle, out| {
        particle.position.iter().for_each(|x| out.extend(x.to_le_bytes()));
    });
    head.push_str("</Points>\n<Cells>\n");
    let indices: Vec<i64> = (0..n as i64).collect();
    array(&mut head, "connectivity", "Int64", 1, data.len());
    append(&mut data, &indices, |index, out| out.extend(index.to_le_bytes()));
    array(&mut head, "offsets", "Int64", 1, data.len());
    append(&mut data, &indices, |index, out| out.extend((index + 1).to_le_bytes()));
    array(&mut head, "types", "UInt8", 1, data.len());
    // VTK_VERTEX
    append(&mut data, &indices, |_, out| out.push(1));
    head.push_str("</Cells>\n</Piece>\n</UnstructuredGrid>\n<AppendedData encoding=\"raw\">\n_");
    let mut file = head.into_bytes();
    file.append(&mut data);
    file.extend_from_slice(b"\n</AppendedData>\n</VTKFile>\n");
    file
}

/// A PVTU file that joins the VTU files of several ranks, named relative to it.
pub fn pvtu(pieces: &[String]) -> Vec<u8> {
    let mut file = String::from(
        "<?xml version=\"1.0\"?>\n<VTKFile type=\"PUnstructuredGrid\" version=\"1.0\" byte_order=\"LittleEndian\" \
         header_type=\"UInt64\">\n<PUnstructuredGrid GhostLevel=\"0\">\n<PPointData Scalars=\"speed\">\n",
    );
    for (name, kind, components) in POINT_ARRAYS {
        let _ = writeln!(
            file,
            "<PDataArray type=\"{kind}\" Name=\"{name}\" NumberOfComponents=\"{components}\"/>"
        );
    }
    file.push_str(
        "</PPointData>\n<PPoints>\n<PDataArray type=\"Float64\" Name=\"Points\" NumberOfComponents=\"3\"/>\n</PPoints>\n",
    );
    for piece in pieces {
        let _ = writeln!(file, "<Piece Source=\"{}\"/>", escape(piece));
    }
    file.push_str("</PUnstructuredGrid>\n</VTKFile>\n");
    file.into_bytes()
}

/// A PVD collection: times [s] and the files that hold them, named relative to it.
pub fn pvd(steps: &[(f64, String)]) -> Vec<u8> {
    let mut file = String::from(
        "<?xml version=\"1.0\"?>\n<VTKFile type=\"Collection\" version=\"1.0\" byte_order=\"LittleEndian\">\n\
         <Collection>\n",
    );
    for (time, name) in steps {
        let _ = writeln!(file, "<DataSet timestep=\"{time:e}\" part=\"0\" file=\"{}\"/>", escape(name));
    }
    file.push_str("</Collection>\n</VTKFile>\n");
    file.into_bytes()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

fn array(head: &mut String, name: &str, kind: &str, components: usize, offset: usize) {
    let _ = writeln!(
        head,
        "<DataArray type=\"{kind}\" Name=\"{name}\" NumberOfComponents=\"{components}\" format=\"appended\" \
         offset=\"{offset}\"/>"
    );
}

/// Appends one array: its length in bytes, then its values.
fn append<T>(data: &mut Vec<u8>, items: &[T], mut write: impl FnMut(&T, &mut Vec<u8>)) {
    let start = data.len();
    data.extend([0; 8]);
    for item in items {
        write(item, data);
    }
    let length = (data.len() - start - 8) as u64;
    data[start..start + 8].copy_from_slice(&length.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn particle(id: u64) -> Shown {
        let x = id as f64;
        Shown {
            id,
            position: [x, 2.0, 3.0],
            radius: 0.5,
            velocity: [3.0, 4.0, 0.0],
            spin: [0.0; 3],
            rank: 7,
            material: 1,
        }
    }

    /// The bytes of an appended array, found as a reader does: by the offset in the header.
    fn array_bytes<'a>(file: &'a [u8], name: &str) -> &'a [u8] {
        let marker = b"<AppendedData encoding=\"raw\">\n_";
        let start = file.windows(marker.len()).position(|window| window == marker).unwrap();
        let head = std::str::from_utf8(&file[..start]).unwrap();
        let line = head.lines().find(|line| line.contains(&format!("Name=\"{name}\""))).unwrap();
        let offset: usize =
            line.split("offset=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap();
        let at = start + marker.len() + offset;
        let length = u64::from_le_bytes(file[at..at + 8].try_into().unwrap()) as usize;
        &file[at + 8..at + 8 + length]
    }

    #[test]
    fn a_reader_finds_every_array_by_its_offset() {
        let file = vtu(&[particle(0), particle(41)]);
        let doubles = |name: &str| -> Vec<f64> {
            array_bytes(&file, name).chunks(8).map(|c| f64::from_le_bytes(c.try_into().unwrap())).collect()
        };
        assert_eq!(doubles("Points"), [0.0, 2.0, 3.0, 41.0, 2.0, 3.0]);
        assert_eq!(doubles("speed"), [5.0, 5.0]);
        assert_eq!(doubles("radius"), [0.5, 0.5]);
        assert_eq!(array_bytes(&file, "id")[8], 41);
        assert_eq!(array_bytes(&file, "rank"), [7, 0, 0, 0, 7, 0, 0, 0]);
        assert_eq!(array_bytes(&file, "types"), [1, 1]);
        assert_eq!(array_bytes(&file, "offsets")[8], 2);
    }

    #[test]
    fn an_empty_rank_writes_a_file_of_no_points() {
        let file = vtu(&[]);
        assert!(array_bytes(&file, "Points").is_empty());
        assert!(String::from_utf8_lossy(&file).contains("NumberOfPoints=\"0\""));
    }

    #[test]
    fn collections_name_their_files_and_times() {
        let text = String::from_utf8(pvd(&[(0.0, "a&b.vtu".into()), (1.5e-3, "c.vtu".into())])).unwrap();
        assert!(text.contains("timestep=\"1.5e-3\" part=\"0\" file=\"c.vtu\""));
        assert!(text.contains("a&amp;b.vtu"));
        assert!(
            String::from_utf8(pvtu(&["p-0.vtu".into()])).unwrap().contains("<Piece Source=\"p-0.vtu\"/>")
        );
    }
}
