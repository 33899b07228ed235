//! Cases in real containers. Without a container engine or the base image of the recipe `cpu/interpreter`, the tests are
//! left out.

#[path = "../support/mod.rs"]
mod support;
#[path = "../support/program.rs"]
mod program;
#[path = "../support/site.rs"]
mod site;

mod faults;
mod images;
mod rights;
mod sites;
