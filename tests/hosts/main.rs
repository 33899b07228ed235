//! Cases on several hosts and devices, with real connections and real faults (tests/lab/README.md).

#[path = "../support/kubernetes.rs"]
mod kubernetes;
#[path = "../support/lab.rs"]
mod lab;
#[path = "../support/slurm.rs"]
mod slurm;
#[path = "../support/mod.rs"]
mod support;

mod cases;
mod clusters;
mod devices;
mod faults;
mod site;
