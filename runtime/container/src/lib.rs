//! Containers: images built from recipes, and workers in containers, through the API of Docker and compatible engines.
//!
//! The interface of this module is synchronous. Knows no event and no record; every request has a time limit.

mod cache;
mod engine;
mod error;
mod exposure;
mod handover;
mod image;
mod image_files;
mod labels;
mod option_checks;
mod processor_time;
mod recipe;
mod requirements;
mod rights;
mod socket;
mod spec;
#[cfg(test)]
mod testing;
mod worker;

pub use cache::stored_program;
pub use engine::{ContainerEngine, EngineFacts};
pub use error::ContainerError;
pub use exposure::socket_exposure;
pub use handover::{receive_streams, worker_arguments};
pub use image::{BaseImage, Image, ImageBuilder};
pub use image_files::ImageFiles;
pub use labels::{Leftover, container_labels, remove_leftovers};
pub use option_checks::RefusedContainerOption;
pub use processor_time::containers_processor_time;
pub use recipe::Recipe;
pub use requirements::Requirements;
pub use rights::{shared_parts, wide_rights};
pub use spec::{ContainerSpec, MountPoint};
pub use worker::ContainerWorker;
