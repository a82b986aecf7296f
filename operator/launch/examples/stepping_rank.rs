//! A rank without MPI that keeps a counter page, minds its lease and stops on request: what an agent expects of one.
//!
//! `stepping_rank STEPS MILLISECONDS FOLDER`: every step appends a line to `FOLDER/rank-<r>` while the lease holds.

use std::error::Error;
use std::fs::OpenOptions;
use std::io::Write;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

use dem_launch::clock::boottime_ns;
use dem_page::{MAGIC, Page, State, file_name};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let (steps, pause, folder) =
        (arguments[1].parse::<u64>()?, arguments[2].parse()?, PathBuf::from(&arguments[3]));
    let rank: u32 = std::env::var("OMPI_COMM_WORLD_RANK")?.parse()?;
    let path = PathBuf::from(std::env::var("DEM_PAGES_DIR")?).join(file_name(rank));
    let page = OpenOptions::new().read(true).write(true).open(path)?;
    let write = |offset: usize, word: u64| page.write_all_at(&word.to_ne_bytes(), offset as u64);
    let read = |offset: usize| {
        let mut word = [0; 8];
        page.read_exact_at(&mut word, offset as u64).map(|()| u64::from_ne_bytes(word))
    };
    let finish = |state: State, code: i32| -> Result<(), Box<dyn Error>> {
        write(offset_of!(Page, exit_code), code as u64)?;
        write(offset_of!(Page, state), state as u64)?;
        std::process::exit(code)
    };
    write(offset_of!(Page, end_step), steps)?;
    write(offset_of!(Page, checkpoint_step), u64::MAX)?;
    write(offset_of!(Page, particles), 100)?;
    write(offset_of!(Page, calc_seconds), f64::from(rank + 1).to_bits())?;
    write(offset_of!(Page, state), State::Running as u64)?;
    write(offset_of!(Page, magic), MAGIC)?;
    let mut log = OpenOptions::new().create(true).append(true).open(folder.join(format!("rank-{rank}")))?;
    for step in 1..=steps {
        std::thread::sleep(Duration::from_millis(pause));
        if boottime_ns() >= read(offset_of!(Page, lease_end_ns))? {
            finish(State::Failed, 76)?;
        }
        writeln!(log, "{step} {}", boottime_ns())?;
        write(offset_of!(Page, step), step)?;
        if read(offset_of!(Page, stop_request))? != 0 {
            write(offset_of!(Page, checkpoint_step), step)?;
            finish(State::Stopped, 75)?;
        }
    }
    finish(State::Done, 0)
}
