//! Cases in real containers, and what prepares workers without them. Without a container engine or the base image of the recipe `cpu/interpreter`, the tests are
//! left out.

#[path = "../support/mod.rs"]
mod support;
#[path = "../support/loopback.rs"]
mod loopback;
#[path = "../support/program.rs"]
mod program;
#[path = "../support/site.rs"]
mod site;

mod environments;
mod faults;
mod images;
mod other_host;
mod restarts;
mod rights;
mod second_engine;
mod sites;
