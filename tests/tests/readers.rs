//! Independent programs read what the solver writes.
#![allow(clippy::unwrap_used, reason = "a helper of tests fails where it stands")]

use std::path::PathBuf;
use std::process::Command;

use dem_tests::local::{a_small_job, run};
use dem_tests::programs;
use serde_json::json;

/// The Python that `tests/setup test` made, with meshio and vtk.
fn python() -> PathBuf {
    programs::cache().join("python/bin/python")
}

#[test]
fn vtk_and_meshio_read_every_particle_back() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let mut job = a_small_job([10, 8, 6], 40);
    job["spec"]["simulation"]["inline"]["outputs"] = json!({"everySteps": 20});
    let run = run(&job.to_string(), folder.path(), 2)?;
    let script = r#"
import pathlib, sys, xml.etree.ElementTree as xml
import meshio
from vtkmodules.vtkIOXML import vtkXMLUnstructuredGridReader, vtkXMLPUnstructuredGridReader
pvd = pathlib.Path(sys.argv[1])
steps = {}
for d in xml.parse(pvd).getroot().iter("DataSet"):
    steps.setdefault(float(d.get("timestep")), []).append(pvd.parent / d.get("file"))
assert len(steps) >= 3, steps
for time, files in sorted(steps.items()):
    points, ids = 0, set()
    for f in files:
        reader = vtkXMLPUnstructuredGridReader() if f.suffix == ".pvtu" else vtkXMLUnstructuredGridReader()
        reader.SetFileName(str(f)); reader.Update()
        grid = reader.GetOutput()
        points += grid.GetNumberOfPoints()
        arrays = grid.GetPointData()
        names = [arrays.GetArrayName(i) for i in range(arrays.GetNumberOfArrays())]
        id_array, radius = arrays.GetArray("id"), arrays.GetArray("radius")
        assert id_array and radius and arrays.GetArray("velocity"), names
        ids |= {int(id_array.GetTuple1(i)) for i in range(grid.GetNumberOfPoints())}
        assert all(abs(radius.GetTuple1(i) - 0.004) < 1e-9 for i in range(grid.GetNumberOfPoints()))
        if f.suffix == ".vtu":
            assert len(meshio.read(f).points) == grid.GetNumberOfPoints()
    assert points == 480 and ids == set(range(480)), (time, points, len(ids))
print("read", len(steps))
"#;
    let said = programs::run(Command::new(python()).arg("-c").arg(script).arg(run.file("paraview")?), "")?;
    anyhow::ensure!(said.starts_with("read "), "{said}");
    Ok(())
}
