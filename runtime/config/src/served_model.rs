//! `model.yaml`: how a model of a model store is served.

use std::path::Path;

use indexmap::IndexMap;
use serde_json::Value;

use super::file::ConfigFile;
use super::section::{OPTIONAL_TEXT, SectionKind, TEXT, TEXT_MAP, TEXTS, read_section, section};
use super::yaml::Node;
use super::{Finding, ValueKind};
use flagperf_core::precision::Precision;

/// The file that says how a model is served, in the folder of the model.
pub const SERVED_MODEL_FILE: &str = "model.yaml";

const COUNT: SectionKind = SectionKind::Value(ValueKind::Count);
const WHOLE: SectionKind = SectionKind::Value(ValueKind::WholeNumber);
const PRECISION: SectionKind = SectionKind::Value(ValueKind::Word(&Precision::NAMES));

section! {
    /// How a model is served.
    #[derive(Clone, Debug, PartialEq)]
    pub struct ServedModel {
        /// the engine that runs the model: a row of `flagperf list engines` or, with --vendor, a compiler of the vendor
        optional(TEXT, "rten") compiler: String,
        /// options of the engine; null is the engine's own default
        optional(SectionKind::Options, "{}") options: IndexMap<String, Value>,
        /// the threads of each instance; 0 is the engine's default
        optional(SectionKind::Value(ValueKind::Threads), "0") threads: u32,
        /// the precision that the engine computes in, which must be that of the file
        optional(PRECISION, "fp32") precision: Precision,
        /// the most rows that one run computes; requests are joined up to it. 0: the shapes are those of the file, and every
        /// request is a run of its own
        optional(WHOLE, "0") max_batch_size: u32,
        /// numbers of rows at which a run starts at once, without a wait for more
        optional(SectionKind::Counts, "[]") preferred_batch_sizes: Vec<u32>,
        /// how long a request may wait for others that are computed with it, in microseconds
        optional(WHOLE, "0") queue_delay_us: u32,
        /// the number of processes that run the model
        optional(COUNT, "1") instances: u32,
        /// the most requests that wait; further ones are refused
        optional(COUNT, "128") queue_size: u32,
        /// the most seconds that a request may wait, and then a run may take; a process that takes longer is started again
        optional(COUNT, "30") time_limit_s: u32,
        /// a text file beside model.yaml with the name of one class a line
        optional(OPTIONAL_TEXT, "null") labels: Option<String>,
        /// other names for inputs, each with the name in the file
        optional(TEXT_MAP, "{}") inputs: IndexMap<String, String>,
        /// other names for outputs, each with the name in the file
        optional(TEXT_MAP, "{}") outputs: IndexMap<String, String>,
        /// of a language model: the most tokens of a prompt that one run reads; answers that are being written get one token in
        /// the same run
        optional(COUNT, "32") prompt_chunk: u32,
        /// of a language model: tokens that end an answer, besides `eos_token` of tokenizer_config.json
        optional(TEXTS, "[]") end_tokens: Vec<String>,
    }
}

/// Where the keys of a model.yaml are, for messages about their values.
#[derive(Clone, Debug)]
pub struct ServedModelPlaces {
    file: String,
    keys: IndexMap<String, String>,
}

impl ServedModelPlaces {
    /// The places of values that another file states, whose lines are not known.
    pub fn in_file(file: &str) -> Self {
        ServedModelPlaces { file: file.to_owned(), keys: IndexMap::new() }
    }

    /// Returns the file and the line of a key; the file alone if the key is not there.
    pub fn of(&self, key: &str) -> &str {
        self.keys.get(key).unwrap_or(&self.file)
    }
}

/// The most processes of a model.
const INSTANCES_MAX: u32 = 64;
/// The most requests of a model that wait.
const QUEUE_MAX: u32 = 1 << 20;

impl ServedModel {
    /// Reads the model.yaml in the folder of a model. Without the file, every key has its default. Messages name a file
    /// under `root` by its path relative to `root`.
    ///
    /// # Errors
    /// When the file cannot be read, a key is unknown, or a value is of the wrong type or contradicts another.
    pub fn read(folder: &Path, root: &Path) -> Result<ServedModel, Finding> {
        ServedModel::read_with_places(folder, root).map(|(model, _)| model)
    }

    /// As [`ServedModel::read`], with the places of the keys.
    ///
    /// # Errors
    /// The same.
    pub fn read_with_places(folder: &Path, root: &Path) -> Result<(ServedModel, ServedModelPlaces), Finding> {
        let path = folder.join(SERVED_MODEL_FILE);
        let name = super::display_name(&path, root);
        let file = match path.symlink_metadata() {
            Ok(_) => ConfigFile::read_as(&path, name)?,
            Err(_) => ConfigFile::parse("", name)?,
        };
        let model: ServedModel = read_section(&file, ServedModel::KEYS)?;
        model.check().map_err(|(key, reason)| {
            let origin = file.entries.get(key).map_or_else(|| file.top(), |node| file.origin(node));
            Finding::error(origin, format!("`{key}`: {reason}"))
        })?;
        let place = |(key, node): (&String, &Node)| (key.clone(), file.origin(node).to_string());
        let keys = file.entries.iter().map(place).collect();
        Ok((model, ServedModelPlaces { file: file.name.to_string(), keys }))
    }

    /// Checks one value against others.
    fn check(&self) -> Result<(), (&'static str, String)> {
        let largest = self.max_batch_size;
        if let Some(size) = self.preferred_batch_sizes.iter().find(|size| **size > largest) {
            return Err((
                "preferred_batch_sizes",
                format!("{size} is larger than `max_batch_size`, which is {largest}"),
            ));
        }
        if largest == 0 && self.queue_delay_us > 0 {
            let reason = "nothing is waited for if `max_batch_size` is 0".to_owned();
            return Err(("queue_delay_us", reason));
        }
        if self.instances > INSTANCES_MAX {
            return Err(("instances", format!("{} is more than {INSTANCES_MAX}", self.instances)));
        }
        if self.queue_size > QUEUE_MAX {
            return Err(("queue_size", format!("{} is more than {QUEUE_MAX}", self.queue_size)));
        }
        for (key, names) in [("inputs", &self.inputs), ("outputs", &self.outputs)] {
            let twice = names.values().enumerate().find(|(at, name)| names.values().take(*at).any(|n| n == *name));
            if let Some((_, name)) = twice {
                return Err((key, format!("`{name}` has two names")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ServedModel, String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(SERVED_MODEL_FILE), text).unwrap();
        ServedModel::read(folder.path(), folder.path()).map_err(|finding| finding.to_string())
    }

    #[test]
    fn without_a_file_every_key_has_its_default() {
        let folder = tempfile::tempdir().unwrap();
        let model = ServedModel::read(folder.path(), folder.path()).unwrap();
        assert_eq!(model, read("").unwrap());
        assert_eq!((model.compiler.as_str(), model.max_batch_size, model.instances), ("rten", 0, 1));
        assert_eq!((model.precision, model.time_limit_s), (Precision::Fp32, 30));
    }

    #[test]
    fn an_unknown_key_is_an_error_with_its_line_and_the_nearest_name() {
        let error = read("compiler: rten\nmax_batchsize: 8\n").unwrap_err();
        assert!(error.starts_with("model.yaml:2: unknown key `max_batchsize` (nearest: `max_batch_size`)"), "{error}");
    }

    #[test]
    fn values_that_contradict_each_other_are_errors_with_their_line() {
        for (text, expected) in [
            (
                "max_batch_size: 4\npreferred_batch_sizes: [2, 8]",
                "model.yaml:2: `preferred_batch_sizes`: 8 is larger than",
            ),
            ("queue_delay_us: 5", "model.yaml:1: `queue_delay_us`: nothing is waited for"),
            ("instances: 65", "model.yaml:1: `instances`: 65 is more than 64"),
            ("outputs: {a: y, b: y}", "model.yaml:1: `outputs`: `y` has two names"),
            ("preferred_batch_sizes: [0]", "model.yaml:1: `preferred_batch_sizes` must be a list of whole numbers"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
