//! Decoders of images that a vendor brings: `decoders` in vendor.yaml.

use std::path::PathBuf;

use flagperf_core::hash::hash_bytes;

use super::env::backends_folder;
use super::operator::hash_files;
use super::section::{SectionKind, TEXT, section};
use super::{ValueKind, Vendor, list_known};

section! {
    /// A library that decodes JPEG images on the device, built from the vendor's sources.
    #[derive(Clone, Debug, PartialEq)]
    pub struct DecoderEntry {
        /// one line that describes it
        required(TEXT) about: String,
        /// the folder of the sources, relative to the vendor's folder
        required(TEXT) folder: PathBuf,
        /// the program and its arguments, in that folder; `{include}` is the folder of flagperf_decoder.h, and `{output}` the
        /// library
        required(SectionKind::Value(ValueKind::NonEmptyTextList)) command: Vec<String>,
    }
}

impl Vendor {
    /// Returns a decoder.
    ///
    /// # Errors
    /// When the vendor has none of this name: with the names that it has.
    pub fn decoder(&self, name: &str) -> Result<&DecoderEntry, String> {
        self.decoders.get(name).ok_or_else(|| {
            let known = list_known(name, self.decoders.keys().map(String::as_str));
            format!("vendor `{}` has no decoder `{name}` (known: {known})", self.name)
        })
    }

    /// Returns the library of a decoder, whether it was built or not: in the user's cache, and another one for other sources.
    /// `None` if the vendor has no such decoder, its sources cannot be read, or the user has no folder for caches.
    pub fn decoder_library(&self, name: &str) -> Option<PathBuf> {
        let entry = self.decoders.get(name)?;
        let sources = hash_files(&self.folder.join(&entry.folder))?;
        let hash = &hash_bytes(format!("{sources} {}", entry.command.join(" ")).as_bytes())[..16];
        Some(backends_folder()?.join("decoders").join(format!("{}-{name}-{hash}.so", self.name)))
    }
}
