//! Writes the CustomResourceDefinition: `cargo run -p dem-crds --bin crdgen`.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("demjobs.granular.dev.yaml");
    std::fs::write(&path, dem_crds::schema::crd_yaml()?)?;
    println!("{}", path.display());
    Ok(())
}
