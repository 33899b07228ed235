//! The program, from the command line to the files of a result: what every command prints, records and refuses.

#[path = "../support/mod.rs"]
mod support;

mod bad_input;
mod cli;
mod datasets;
mod instructions;
mod models;
mod monitor_scripts;
mod runner;
mod scenarios;
mod shipped_cases;
mod shipped_trainings;
mod training;
mod training_engines;
mod training_group;
mod training_network;
mod training_program;
mod training_program_ranks;
mod training_rescaled;
mod verify;
mod worker;
