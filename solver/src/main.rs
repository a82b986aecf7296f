//! `dem-solver`: see [`dem_solver::args`] for the command line.

use clap::Parser;
use dem_solver::args::{Cli, Command};

fn main() {
    let cli = Cli::parse();
    let code = match &cli.command {
        Command::Run(args) => dem_solver::run::run(args),
        Command::Check(args) => dem_solver::check::check(args),
        Command::Schema => {
            println!("{}", dem_config::schema());
            dem_solver::failure::exit::DONE
        }
    };
    std::process::exit(code);
}
