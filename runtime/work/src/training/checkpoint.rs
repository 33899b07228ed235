//! Checkpoints of a training: parameters and running statistics under the names of the model, what the optimizer remembers
//! beside them, and how far the training had come.
//!
//! A checkpoint is a folder that gets its name when it is complete and on disk. The newest two are kept: if one cannot be
//! written or read, there is an older one.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use flagperf_core::measure::TrainingProgress;
use flagperf_core::regular_file::read_regular;
use flagperf_core::run_files::CHECKPOINTS_FOLDER;
use flagperf_core::tensor::Tensor;
use flagperf_evaluation::{StoredTensor, stored_dtype, write_tensors};
use flagperf_onnx::{State, StateKind};
use safetensors::SafeTensors;

/// The parameters and running statistics, in a checkpoint and of a trained model.
pub const MODEL_FILE: &str = "model.safetensors";
/// What the optimizer remembers.
const OPTIMIZER_FILE: &str = "optimizer.safetensors";
const PROGRESS_FILE: &str = "progress.json";
/// Number of checkpoints that are kept.
const KEPT: usize = 2;
/// Largest file that is read.
const BYTES_MAX: u64 = 1 << 40;

/// A training as it was at the end of an epoch.
#[derive(Debug)]
pub struct Checkpoint {
    pub progress: TrainingProgress,
    /// The states, in the order of the training step.
    pub states: Vec<Tensor>,
}

/// The checkpoints of a case.
pub struct Checkpoints {
    folder: PathBuf,
}

impl Checkpoints {
    /// The checkpoints in the folder of a case, which may have none.
    pub fn of_case(folder: &Path) -> Self {
        Checkpoints { folder: folder.join(CHECKPOINTS_FOLDER) }
    }

    /// Writes a checkpoint, and removes those before the newest two.
    ///
    /// # Errors
    /// When it cannot be written. The older ones then stay.
    pub fn write(&self, progress: TrainingProgress, states: (&[State], &[Tensor])) -> io::Result<()> {
        let unfinished = self.folder.join("unfinished");
        let written = write_files(&unfinished, progress, states)
            .and_then(|()| fs::rename(&unfinished, self.folder.join(folder_name(progress))))
            .and_then(|()| File::open(&self.folder)?.sync_all());
        if written.is_err() {
            // It may have filled the disk.
            let _ = fs::remove_dir_all(&unfinished);
            return written;
        }
        for old in self.names().iter().rev().skip(KEPT) {
            fs::remove_dir_all(self.folder.join(old))?;
        }
        Ok(())
    }

    /// Returns the newest checkpoint with these states, and why newer ones were not used; `None` when there is none.
    pub fn newest(&self, states: &[State]) -> (Option<Checkpoint>, Vec<String>) {
        let mut unusable = Vec::new();
        for name in self.names().iter().rev() {
            match read_files(&self.folder.join(name), states) {
                Ok(checkpoint) => return (Some(checkpoint), unusable),
                Err(error) => unusable.push(format!("the checkpoint `{name}` cannot be used: {error}")),
            }
        }
        (None, unusable)
    }

    /// Removes all checkpoints: the training has ended.
    pub fn remove(&self) {
        // What cannot be removed does no harm.
        let _ = fs::remove_dir_all(&self.folder);
    }

    /// Returns the names of the checkpoints, the oldest first.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
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
    write_states(path, states, |kind| kind != StateKind::Memory)
}

fn folder_name(progress: TrainingProgress) -> String {
    format!("round{:06}_epoch{:06}", progress.rounds, progress.epochs)
}

fn write_files(folder: &Path, progress: TrainingProgress, states: (&[State], &[Tensor])) -> io::Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder)?;
    write_model(&folder.join(MODEL_FILE), states)?;
    write_states(&folder.join(OPTIMIZER_FILE), states, |kind| kind == StateKind::Memory)?;
    fs::write(folder.join(PROGRESS_FILE), serde_json::to_vec(&progress)?)?;
    for file in [MODEL_FILE, OPTIMIZER_FILE, PROGRESS_FILE] {
        File::open(folder.join(file))?.sync_all()?;
    }
    File::open(folder)?.sync_all()
}

fn write_states(path: &Path, states: (&[State], &[Tensor]), has: impl Fn(StateKind) -> bool) -> io::Result<()> {
    let selected = states.0.iter().zip(states.1).filter(|(state, _)| has(state.kind));
    let tensors = selected.map(|(state, tensor)| (state.name.clone(), StoredTensor(tensor.clone())));
    write_tensors(tensors.collect(), HashMap::new(), path)
}

fn read_files(folder: &Path, states: &[State]) -> Result<Checkpoint, String> {
    let read = |file: &str| read_regular(&folder.join(file), BYTES_MAX).map_err(|e| format!("`{file}`: {e}"));
    let progress = serde_json::from_slice(&read(PROGRESS_FILE)?).map_err(|e| format!("`{PROGRESS_FILE}`: {e}"))?;
    let bytes = [(MODEL_FILE, read(MODEL_FILE)?), (OPTIMIZER_FILE, read(OPTIMIZER_FILE)?)];
    let parsed = |(file, bytes)| SafeTensors::deserialize(bytes).map_err(|e| format!("`{file}`: {e}"));
    let [model, optimizer] = bytes.each_ref().map(|(file, bytes)| parsed((file, bytes)));
    let (model, optimizer) = (model?, optimizer?);
    let tensor = |state: &State| {
        let file = if state.kind == StateKind::Memory { &optimizer } else { &model };
        let view = file.tensor(&state.name).map_err(|e| format!("`{}`: {e}", state.name))?;
        let found = stored_dtype(&view).and_then(|dtype| Tensor::from_bytes(view.shape(), dtype, view.data()).ok());
        let is_fitting = |tensor: &Tensor| tensor.spec() == state.initial.spec;
        found.filter(is_fitting).ok_or_else(|| format!("`{}` is not `{}`", state.name, state.initial.spec))
    };
    Ok(Checkpoint { progress, states: states.iter().map(tensor).collect::<Result<_, _>>()? })
}

#[cfg(test)]
mod tests {
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
        TrainingProgress { rounds: 0, epochs, steps: 10, skipped: 0, train_s: Seconds(1.5) }
    }

    fn values(value: f32) -> Vec<Tensor> {
        [value, 2.0 * value].map(|value| Tensor::from_vec([2], vec![value; 2]).unwrap()).into()
    }

    #[test]
    fn the_newest_two_checkpoints_are_kept_and_a_damaged_one_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let (checkpoints, states) = (Checkpoints::of_case(folder.path()), states());
        assert!(checkpoints.newest(&states).0.is_none());
        for epochs in [9, 10, 11] {
            checkpoints.write(progress(epochs), (&states, &values(epochs as f32))).unwrap();
        }
        assert_eq!(checkpoints.names(), ["round000000_epoch000010", "round000000_epoch000011"]);
        let (newest, unusable) = checkpoints.newest(&states);
        let newest = newest.unwrap();
        assert_eq!((newest.progress, newest.states, unusable.len()), (progress(11), values(11.0), 0));
        let damaged = checkpoints.folder.join("round000000_epoch000011").join(OPTIMIZER_FILE);
        fs::write(&damaged, &fs::read(&damaged).unwrap()[..20]).unwrap();
        let (newest, unusable) = checkpoints.newest(&states);
        assert_eq!((newest.unwrap().states, unusable.len()), (values(10.0), 1));
    }

    #[test]
    fn a_checkpoint_of_another_model_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let (checkpoints, mut states) = (Checkpoints::of_case(folder.path()), states());
        checkpoints.write(progress(1), (&states, &values(1.0))).unwrap();
        states[0].initial.spec = TensorSpec::new([3], DType::F32);
        let (newest, unusable) = checkpoints.newest(&states);
        assert!(newest.is_none());
        assert_eq!(unusable, ["the checkpoint `round000000_epoch000001` cannot be used: `fc.bias` is not `3,f32`"]);
    }

    #[test]
    fn a_checkpoint_that_cannot_be_written_leaves_the_older_ones() {
        let folder = tempfile::tempdir().unwrap();
        let (checkpoints, states) = (Checkpoints::of_case(folder.path()), states());
        checkpoints.write(progress(1), (&states, &values(1.0))).unwrap();
        // A folder of the name of the next one that is not empty cannot be replaced.
        fs::create_dir_all(checkpoints.folder.join("round000000_epoch000002/occupied")).unwrap();
        checkpoints.write(progress(2), (&states, &values(2.0))).unwrap_err();
        let (newest, _) = checkpoints.newest(&states);
        assert_eq!(newest.unwrap().progress, progress(1));
    }
}
