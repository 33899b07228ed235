//! Cases in real containers, and what prepares workers without them. Without a container engine or the base image of the recipe `cpu/interpreter`, the tests are
//! left out.

mod environments;
mod faults;
mod images;
mod other_host;
mod restarts;
mod rights;
mod second_engine;
mod sites;
