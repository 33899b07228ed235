//! Checkpoints of a training: parameters and running statistics under the names of the model, what the optimizer remembers
//! beside them, and how far the training had come.
//!
//! A checkpoint is a folder that gets its name when it is complete and on disk. The newest two are kept: if one cannot be
//! written or read, there is an older one.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use flagperf_core::hash::{hash_bytes, hash_file};
use flagperf_core::measure::{TrainedBy, TrainingProgress, TrainingSteps};
use flagperf_core::regular_file::read_regular;
use flagperf_core::run_files::CHECKPOINTS_FOLDER;
use flagperf_core::tensor::Tensor;
use flagperf_evaluation::{StoredTensor, stored_dtype, write_tensors};
use flagperf_onnx::{State, StateKind};
use indexmap::IndexMap;
use safetensors::SafeTensors;
use serde_json::{Value, json};

use super::model::is_of_model;

/// The parameters and running statistics, in a checkpoint and of a trained model.
pub const MODEL_FILE: &str = "model.safetensors";
/// What the optimizer remembers.
const OPTIMIZER_FILE: &str = "optimizer.safetensors";
const PROGRESS_FILE: &str = "progress.json";
/// The files of a checkpoint.
const FILES: [&str; 3] = [MODEL_FILE, OPTIMIZER_FILE, PROGRESS_FILE];
/// Number of checkpoints that are kept.
const KEPT: usize = 2;
/// Largest file that is read.
const BYTES_MAX: u64 = 1 << 40;

/// A training as it was at the end of a pass.
#[derive(Debug)]
pub struct Checkpoint {
    pub progress: TrainingProgress,
    /// The states, in the order of the training step.
    pub states: Vec<Tensor>,
    /// How many processes have trained which steps; empty before the first one, and in a checkpoint of an older program.
    pub trained_by: Vec<TrainedBy>,
}

/// What a checkpoint must agree with to be one of the training.
#[derive(Clone, Copy, Debug)]
pub struct Extent<'e> {
    /// Trainings of the case.
    pub rounds: u32,
    /// When checkpoints were due.
    pub steps: TrainingSteps,
    /// The hash of the index of the training's dataset.
    pub data: &'e str,
}

/// The progress as a file contains it.
struct StoredProgress {
    progress: TrainingProgress,
    /// The hash of the index of the training's dataset.
    data_sha256: String,
    trained_by: Vec<TrainedBy>,
}

/// The checkpoints of a case.
pub struct Checkpoints<'e> {
    folder: PathBuf,
    extent: Extent<'e>,
}

impl<'e> Checkpoints<'e> {
    /// The checkpoints in the folder of a case, which may have none.
    pub fn of_case(folder: &Path, extent: Extent<'e>) -> Self {
        Checkpoints { folder: folder.join(CHECKPOINTS_FOLDER), extent }
    }

    /// Writes a checkpoint, and removes those before the newest two. Returns its name and its hash.
    ///
    /// # Errors
    /// When it cannot be written. The older ones then stay.
    pub fn write(
        &self,
        progress: TrainingProgress,
        states: (&[State], &[Tensor]),
        trained_by: &[TrainedBy],
    ) -> io::Result<(String, String)> {
        let (unfinished, name) = (self.folder.join("unfinished"), folder_name(progress));
        let stored =
            StoredProgress { progress, data_sha256: self.extent.data.to_owned(), trained_by: trained_by.to_vec() };
        let written = write_files(&unfinished, &stored, states).and_then(|sha256| {
            let place = self.folder.join(&name);
            // An unusable one may have the name.
            if place.exists() {
                fs::remove_dir_all(&place)?;
            }
            fs::rename(&unfinished, place)?;
            File::open(&self.folder)?.sync_all().map(|()| (name, sha256))
        });
        if written.is_err() {
            // It may have filled the disk.
            let _ = fs::remove_dir_all(&unfinished);
            return written;
        }
        for old in self.names().iter().rev().skip(KEPT) {
            fs::remove_dir_all(self.folder.join(old))?;
        }
        written
    }

    /// Returns the folder of the checkpoints.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the newest checkpoint with these states and one of these hashes, and why newer ones were not used; `None` when there
    /// is none.
    pub fn newest(&self, states: &[State], hashes: &IndexMap<String, String>) -> (Option<Checkpoint>, Vec<String>) {
        let mut unusable = Vec::new();
        for name in self.names().iter().rev() {
            match self.read(name, states, hashes.get(name)) {
                Ok(checkpoint) => return (Some(checkpoint), unusable),
                Err(error) => unusable.push(format!("the checkpoint `{name}` cannot be used: {error}")),
            }
        }
        (None, unusable)
    }

    /// Returns the checkpoint of this name.
    ///
    /// # Errors
    /// When its files cannot be read, or are not those with this hash.
    pub fn read(&self, name: &str, states: &[State], sha256: Option<&String>) -> Result<Checkpoint, String> {
        // The name may be from another host.
        if !self.names().iter().any(|own| own == name) {
            return Err("this host does not have it".to_owned());
        }
        let (checkpoint, found) = read_files(&self.folder.join(name), states)?;
        match sha256 {
            None => return Err("no event in `events.jsonl` states its hash".to_owned()),
            Some(sha256) if *sha256 != found => {
                return Err("its files are not those that the training wrote".to_owned());
            }
            Some(_) => {}
        }
        self.check(name, &checkpoint.0)?;
        let (StoredProgress { progress, trained_by, .. }, states) = checkpoint;
        Ok(Checkpoint { progress, states, trained_by })
    }

    /// Checks that the training can have come so far.
    fn check(&self, name: &str, stored: &StoredProgress) -> Result<(), String> {
        let Extent { rounds, steps, data } = self.extent;
        let progress = stored.progress;
        if stored.data_sha256 != data {
            return Err("the training data are others now".to_owned());
        }
        let is_possible = progress.rounds < rounds
            && (1..steps.all).contains(&progress.steps)
            && steps.has_checkpoint(progress.steps)
            && u64::from(progress.epochs) == progress.steps / steps.per_epoch
            && progress.skipped <= progress.steps
            && progress.train_s.0.is_finite()
            && progress.train_s.0 >= 0.0
            && folder_name(progress) == name;
        is_possible
            .then_some(())
            .ok_or_else(|| format!("`{PROGRESS_FILE}` states what the training cannot have reached"))
    }

    /// Removes all checkpoints: the training has ended.
    pub fn remove(&self) {
        // What cannot be removed does no harm.
        let _ = fs::remove_dir_all(&self.folder);
    }

    /// Returns the names of the checkpoints, the oldest first.
    fn names(&self) -> Vec<String> {
        // A link leads to files that are not those of the training.
        let is_link = fs::symlink_metadata(&self.folder).is_ok_and(|found| found.is_symlink());
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten().filter(|_| !is_link);
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<String> = names.filter(|name| name.starts_with("round")).collect();
        names.sort();
        names
    }
}

/// Writes the parameters and running statistics of a trained model.
///
/// # Errors
/// When the file cannot be written.
pub fn write_model(path: &Path, states: (&[State], &[Tensor])) -> io::Result<()> {
    write_states(path, states, is_of_model)
}

fn folder_name(progress: TrainingProgress) -> String {
    format!("round{:06}_step{:012}", progress.rounds, progress.steps)
}

fn write_files(folder: &Path, progress: &StoredProgress, states: (&[State], &[Tensor])) -> io::Result<String> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder)?;
    write_model(&folder.join(MODEL_FILE), states)?;
    write_states(&folder.join(OPTIMIZER_FILE), states, |kind| !is_of_model(kind))?;
    let StoredProgress { progress, data_sha256, trained_by } = progress;
    let stored = json!({"progress": progress, "data_sha256": data_sha256, "trained_by": trained_by});
    fs::write(folder.join(PROGRESS_FILE), serde_json::to_vec(&stored)?)?;
    let hash = |file: &str| {
        File::open(folder.join(file))?.sync_all()?;
        hash_file(&folder.join(file))
    };
    let [model, optimizer, progress] = FILES.map(hash);
    let hashes = [model?, optimizer?, progress?];
    File::open(folder)?.sync_all().map(|()| hash_of_files(hashes))
}

/// Returns the hash of a checkpoint from those of [`FILES`].
fn hash_of_files(hashes: [String; FILES.len()]) -> String {
    let lines = FILES.iter().zip(hashes).map(|(file, hash)| format!("{file} {hash}\n"));
    hash_bytes(lines.collect::<String>().as_bytes())
}

fn write_states(path: &Path, states: (&[State], &[Tensor]), has: impl Fn(StateKind) -> bool) -> io::Result<()> {
    let selected = states.0.iter().zip(states.1).filter(|(state, _)| has(state.kind));
    let tensors = selected.map(|(state, tensor)| (state.name.clone(), StoredTensor(tensor.clone())));
    write_tensors(tensors.collect(), HashMap::new(), path)
}

fn parse<'b>(file: &str, bytes: &'b [u8]) -> Result<SafeTensors<'b>, String> {
    SafeTensors::deserialize(bytes).map_err(|e| format!("`{file}`: {e}"))
}

/// Returns the progress, the states and the hash of a checkpoint.
fn read_files(folder: &Path, states: &[State]) -> Result<((StoredProgress, Vec<Tensor>), String), String> {
    let is_link = |path: &Path| fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
    let read = |file: &str| {
        let path = folder.join(file);
        if is_link(folder) || is_link(&path) {
            return Err(format!("`{file}` is a link"));
        }
        read_regular(&path, BYTES_MAX).map_err(|e| format!("`{file}`: {e}"))
    };
    let [model, optimizer, progress] = FILES.map(|file| read(file).map(|bytes| (file, bytes)));
    let bytes = [model?, optimizer?, progress?];
    let hashes = bytes.each_ref().map(|(_, bytes)| hash_bytes(bytes));
    let [model, optimizer, (_, progress)] = &bytes;
    let damaged = |e: serde_json::Error| format!("`{PROGRESS_FILE}`: {e}");
    let mut stored: Value = serde_json::from_slice(progress).map_err(damaged)?;
    let data_sha256 = stored["data_sha256"].as_str().unwrap_or_default().to_owned();
    let reached = stored.get_mut("progress").map(Value::take).unwrap_or_default();
    let trained_by = stored.get_mut("trained_by").map_or(Ok(Vec::new()), |by| serde_json::from_value(by.take()));
    let progress = StoredProgress {
        progress: serde_json::from_value(reached).map_err(damaged)?,
        data_sha256,
        trained_by: trained_by.map_err(damaged)?,
    };
    let (model, optimizer) = (parse(MODEL_FILE, &model.1)?, parse(OPTIMIZER_FILE, &optimizer.1)?);
    let tensor = |state: &State| {
        let file = if is_of_model(state.kind) { &model } else { &optimizer };
        let view = file.tensor(&state.name).map_err(|e| format!("`{}`: {e}", state.name))?;
        let found = stored_dtype(&view).and_then(|dtype| Tensor::from_bytes(view.shape(), dtype, view.data()).ok());
        let is_fitting = |tensor: &Tensor| tensor.spec() == state.initial.spec;
        found.filter(is_fitting).ok_or_else(|| format!("`{}` is not `{}`", state.name, state.initial.spec))
    };
    let states = states.iter().map(tensor).collect::<Result<_, _>>()?;
    Ok(((progress, states), hash_of_files(hashes)))
}

#[cfg(test)]
mod tests {
    use flagperf_core::measure::TrainingLength;
    use flagperf_core::tensor::{DType, TensorSpec};
    use flagperf_core::units::Seconds;
    use flagperf_onnx::{Init, Weight, WeightRole, WeightSource};

    use super::*;

    fn states() -> Vec<State> {
        let state = |name: &str, kind| {
            let source = WeightSource::Seed { seed: 0, init: Init::Constant(0.0) };
            let initial = Weight { role: WeightRole::Parameter, source, spec: TensorSpec::new([2], DType::F32) };
            State { name: name.to_owned(), kind, next: format!("{name}.next"), initial }
        };
        vec![state("fc.bias", StateKind::Parameter), state("fc.bias:momentum", StateKind::Memory)]
    }

    fn progress(epochs: u32) -> TrainingProgress {
        TrainingProgress { epochs, steps: 10 * u64::from(epochs), train_s: Seconds(1.5), seed: 7, ..Default::default() }
    }

    /// A training of 200 steps in epochs of 10.
    fn extent() -> Extent<'static> {
        let length = TrainingLength { max_epochs: 20, max_steps: None, eval_interval: 1, eval_steps: None };
        Extent { rounds: 1, steps: length.in_steps(10), data: "data" }
    }

    fn values(value: f32) -> Vec<Tensor> {
        [value, 2.0 * value].map(|value| Tensor::from_vec([2], vec![value; 2]).unwrap()).into()
    }

    /// Writes checkpoints after these epochs; returns their hashes.
    fn write(
        checkpoints: &Checkpoints<'_>,
        states: &[State],
        epochs: impl IntoIterator<Item = u32>,
    ) -> IndexMap<String, String> {
        let written = epochs
            .into_iter()
            .map(|epochs| checkpoints.write(progress(epochs), (states, &values(epochs as f32)), &[]).unwrap());
        written.collect()
    }

    #[test]
    fn the_newest_two_checkpoints_are_kept_and_a_damaged_one_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let (checkpoints, states) = (Checkpoints::of_case(folder.path(), extent()), states());
        assert!(checkpoints.newest(&states, &IndexMap::new()).0.is_none());
        let hashes = write(&checkpoints, &states, [9, 10, 11]);
        assert_eq!(checkpoints.names(), ["round000000_step000000000100", "round000000_step000000000110"]);
        let (newest, unusable) = checkpoints.newest(&states, &hashes);
        let newest = newest.unwrap();
        assert_eq!((newest.progress, newest.states, unusable.len()), (progress(11), values(11.0), 0));
        let damaged = checkpoints.folder.join("round000000_step000000000110").join(OPTIMIZER_FILE);
        fs::write(&damaged, &fs::read(&damaged).unwrap()[..20]).unwrap();
        let (newest, unusable) = checkpoints.newest(&states, &hashes);
        assert_eq!((newest.unwrap().states, unusable.len()), (values(10.0), 1));
    }

    #[test]
    fn a_checkpoint_that_was_exchanged_or_is_a_link_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let (checkpoints, states) = (Checkpoints::of_case(folder.path(), extent()), states());
        let hashes = write(&checkpoints, &states, [3, 4]);
        let found = || {
            let (newest, unusable) = checkpoints.newest(&states, &hashes);
            (newest.map(|newest| newest.progress.epochs), unusable.join("; "))
        };
        let path = |file: &str| checkpoints.folder.join("round000000_step000000000040").join(file);
        let model = fs::read(path(MODEL_FILE)).unwrap();
        write_model(&path(MODEL_FILE), (&states, &values(9.0))).unwrap();
        let (epochs, reason) = found();
        assert_eq!(epochs, Some(3));
        assert!(reason.ends_with("its files are not those that the training wrote"), "{reason}");
        let elsewhere = folder.path().join("elsewhere");
        fs::write(&elsewhere, model).unwrap();
        fs::remove_file(path(MODEL_FILE)).unwrap();
        std::os::unix::fs::symlink(&elsewhere, path(MODEL_FILE)).unwrap();
        let (epochs, reason) = found();
        assert_eq!(epochs, Some(3));
        assert!(reason.ends_with("`model.safetensors` is a link"), "{reason}");
        let (newest, unusable) = checkpoints.newest(&states, &IndexMap::new());
        assert!(
            newest.is_none() && unusable[1].ends_with("no event in `events.jsonl` states its hash"),
            "{unusable:?}"
        );
    }

    #[test]
    fn an_unusable_checkpoint_is_replaced_by_one_of_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let (checkpoints, states) = (Checkpoints::of_case(folder.path(), extent()), states());
        write(&checkpoints, &states, [3]);
        let hashes = write(&checkpoints, &states, [3]);
        assert!(checkpoints.newest(&states, &hashes).0.is_some());
    }

    #[test]
    fn progress_that_no_training_can_have_reached_and_other_data_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints::of_case(folder.path(), extent());
        let refused = |progress: TrainingProgress, data: &str| {
            let stored = StoredProgress { progress, data_sha256: data.to_owned(), trained_by: Vec::new() };
            checkpoints.check("round000000_step000000000030", &stored).is_err()
        };
        let honest = progress(3);
        assert!(!refused(honest, "data"));
        assert!(refused(honest, "other data"));
        for damaged in [
            TrainingProgress { epochs: 20, steps: 200, ..honest },
            TrainingProgress { epochs: 4, steps: 40, ..honest },
            TrainingProgress { rounds: 1, ..honest },
            TrainingProgress { steps: u64::MAX, ..honest },
            TrainingProgress { steps: 35, ..honest },
            TrainingProgress { epochs: 2, ..honest },
            TrainingProgress { skipped: 99_999, ..honest },
            TrainingProgress { train_s: Seconds(-1.0), ..honest },
            TrainingProgress { train_s: Seconds(f64::NAN), ..honest },
        ] {
            assert!(refused(damaged, "data"), "{damaged:?}");
        }
    }

    #[test]
    fn a_checkpoint_within_an_epoch_is_one_of_a_training_that_evaluates_there() {
        let folder = tempfile::tempdir().unwrap();
        let length = TrainingLength { max_epochs: 20, max_steps: None, eval_interval: 1, eval_steps: Some(7) };
        let checkpoints = Checkpoints::of_case(folder.path(), Extent { steps: length.in_steps(10), ..extent() });
        let found = |epochs, steps| {
            let progress = TrainingProgress { epochs, steps, ..progress(0) };
            let stored = StoredProgress { progress, data_sha256: "data".to_owned(), trained_by: Vec::new() };
            checkpoints.check(&folder_name(progress), &stored).is_ok()
        };
        assert!(found(1, 14) && found(7, 70));
        assert!(!found(1, 10) && !found(2, 14) && !found(0, 14) && !found(20, 200));
    }

    #[test]
    fn a_checkpoint_of_another_model_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let (checkpoints, mut states) = (Checkpoints::of_case(folder.path(), extent()), states());
        let hashes = write(&checkpoints, &states, [1]);
        states[0].initial.spec = TensorSpec::new([3], DType::F32);
        let (newest, unusable) = checkpoints.newest(&states, &hashes);
        assert!(newest.is_none());
        assert_eq!(
            unusable,
            ["the checkpoint `round000000_step000000000010` cannot be used: `fc.bias` is not `3,f32`"]
        );
    }

    #[test]
    fn a_checkpoint_that_cannot_be_written_leaves_the_older_ones() {
        let folder = tempfile::tempdir().unwrap();
        let (checkpoints, states) = (Checkpoints::of_case(folder.path(), extent()), states());
        let hashes = write(&checkpoints, &states, [1]);
        // A file of the name of the next one is not replaced.
        fs::write(checkpoints.folder.join("round000000_step000000000020"), "occupied").unwrap();
        checkpoints.write(progress(2), (&states, &values(2.0)), &[]).unwrap_err();
        let (newest, _) = checkpoints.newest(&states, &hashes);
        assert_eq!(newest.unwrap().progress, progress(1));
    }
}
