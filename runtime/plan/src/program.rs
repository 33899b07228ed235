//! Plans a training that a program of the case carries out: its command, and the patterns of its figures.

use std::path::PathBuf;

use indexmap::IndexMap;
use regex::Regex;

use super::planning::Planner;
use super::{Job, Task};
use flagperf_config::{Finding, list_names};
use flagperf_core::description::PROGRAM_ENGINE;
use flagperf_core::process_group::ProcessGroup;

/// Names of patterns that are no metrics.
pub const PROGRAM_FIGURES: [&str; 4] = ["step", "samples", "loss", "learning_rate"];

/// Names in braces that are no keys of the case.
const PLACES: [&str; 4] = ["hardware", "data_dir", "log_dir", "batch_size_per_device"];

/// A training program, ready to be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrainingProgram {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// The folder in which it starts.
    pub folder: PathBuf,
    /// Variables by which it finds the programs of the other devices; empty on one device.
    pub environment: IndexMap<String, String>,
}

impl Job {
    /// Returns the training program of the case. `{NAME}` in its command stands for the value of a setting or a parameter, and for
    /// `vendor`, `case`, `framework`, `hardware`, `data_dir`, `log_dir` and `batch_size_per_device`. `round` is the number of the
    /// repetition: each has a port of its own, so that a process of one never meets those of another.
    ///
    /// # Errors
    /// When a name in braces is unknown; the text says which are known.
    pub fn program(&self, round: u32) -> Result<TrainingProgram, String> {
        let Task::Train { training, .. } = &self.task else { return Err("the case does not train".to_owned()) };
        let own = |name: &str| match name {
            "hardware" => Some(training.hardware.clone()),
            "data_dir" => Some(self.data_dir.display().to_string()),
            "log_dir" => Some(self.log_dir.display().to_string()),
            "batch_size_per_device" => Some(self.settings.batch_size.to_string()),
            _ => self.config.get(name).map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned)),
        };
        let fill = |text: &String| {
            fill_placeholders(text, own).map_err(|name| {
                let known = PLACES.into_iter().chain(self.config.keys().map(String::as_str));
                format!("`{{{name}}}` names no key of the case (known: {})", list_names(known))
            })
        };
        let argv = training.command.iter().map(fill).collect::<Result<_, _>>()?;
        let folder = training.command_folder.as_ref().map(fill).transpose()?;
        let group = self.process_group.as_ref().filter(|group| group.size > 1);
        let mut environment = group.map_or_else(|| Ok(IndexMap::new()), |group| rank_variables(group, round))?;
        environment.extend(training.devices_of_host.clone());
        Ok(TrainingProgram { argv, folder: self.data_dir.join(folder.unwrap_or_default()), environment })
    }
}

/// Returns the variables of a process that trains with others: those of torchrun, which FlagPerf's launcher sets, too, with its
/// `NODE_RANK`.
fn rank_variables(group: &ProcessGroup, round: u32) -> Result<IndexMap<String, String>, String> {
    let ProcessGroup { rank, size, node_rank, local_rank, local_size, master_port, .. } = group;
    let port = u32::from(*master_port) + round;
    if port > u16::MAX.into() {
        return Err(format!(
            "repetition {round} needs the port after `MASTER_PORT` {master_port} by that number: it does not exist"
        ));
    }
    let numbers = [
        ("RANK", *rank),
        ("WORLD_SIZE", *size),
        ("LOCAL_RANK", *local_rank),
        ("LOCAL_WORLD_SIZE", *local_size),
        ("NODE_RANK", *node_rank),
        ("GROUP_RANK", *node_rank),
        ("MASTER_PORT", port),
    ];
    let numbers = numbers.map(|(name, number)| (name.to_owned(), number.to_string()));
    Ok(numbers.into_iter().chain([("MASTER_ADDR".to_owned(), group.master_address.clone())]).collect())
}

/// The regular expressions of the figures in a program's lines.
#[derive(Clone, Debug)]
pub struct LinePatterns(Vec<(String, Regex)>);

impl LinePatterns {
    /// Compiles the patterns of a case.
    ///
    /// # Errors
    /// When a pattern is no regular expression, or has no group for the figure.
    pub fn new(patterns: &IndexMap<String, String>) -> Result<Self, String> {
        let compile = |(name, pattern): (&String, &String)| {
            let regex = Regex::new(pattern).map_err(|error| {
                format!("`{name}` is no regular expression: {}", error.to_string().lines().last().unwrap_or_default())
            })?;
            match regex.captures_len() {
                ..2 => Err(format!("`{name}` has no group in parentheses for the figure")),
                _ => Ok((name.clone(), regex)),
            }
        };
        patterns.iter().map(compile).collect::<Result<_, _>>().map(LinePatterns)
    }

    /// Returns the figures in a line by name. Commas between digits are ignored; a group that is no number is no figure.
    pub fn figures(&self, line: &str) -> IndexMap<String, f64> {
        let figure = |(name, regex): &(String, Regex)| {
            let text = regex.captures(line)?.get(1)?.as_str().replace(',', "");
            Some((name.clone(), text.parse().ok()?))
        };
        self.0.iter().filter_map(figure).collect()
    }
}

/// Replaces each name in braces by its value; other braces are left as they are. Returns the first name without a value as an error.
fn fill_placeholders(text: &str, value: impl Fn(&str) -> Option<String>) -> Result<String, String> {
    let is_name = |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_.".contains(c));
    let mut filled = String::new();
    let mut rest = text;
    while let Some(begin) = rest.find('{') {
        let (before, after) = rest.split_at(begin);
        filled += before;
        match after[1..].split_once('}').filter(|(name, _)| is_name(name)) {
            Some((name, next)) => {
                filled += &value(name).ok_or_else(|| name.to_owned())?;
                rest = next;
            }
            None => {
                filled.push('{');
                rest = &after[1..];
            }
        }
    }
    Ok(filled + rest)
}

impl Planner<'_> {
    /// Returns whether the framework of the case starts a program.
    pub(super) fn starts_program(&self) -> bool {
        let framework = self.config.vendor.as_ref().and_then(|vendor| vendor.framework(&self.case.key.value));
        framework.is_some_and(|(_, entry)| entry.engine == PROGRAM_ENGINE)
    }

    /// Checks the command and the patterns of a training.
    pub(super) fn check_program(&mut self, job: &Job, starts_program: bool) {
        let Task::Train { training, .. } = &job.task else { return };
        if !starts_program {
            if !training.command.is_empty() {
                let message = format!("`command` has no effect: framework `{}` starts no program", job.engine.name);
                let hint = format!("choose a framework with `engine: {PROGRAM_ENGINE}` in vendor.yaml");
                let origin = self.case.settings["command"].origin.clone();
                self.findings.push(Finding::warning(origin, message).with_hint(hint));
            }
            return;
        }
        if training.command.is_empty() {
            let message = format!("framework `{}` starts a program, but the case has no `command`", job.engine.name);
            let hint = "add, for example, `command: [python3, -u, run_pretraining.py, --data_dir, \"{data_dir}\"]`";
            self.add_error("command", Finding::unplaced(message).with_hint(hint));
        }
        if let Err(reason) = job.program(0) {
            self.add_error("command", Finding::unplaced(format!("`command`: {reason}")));
        }
        if let Err(reason) = LinePatterns::new(&training.patterns) {
            self.add_error("patterns", Finding::unplaced(format!("`patterns`: {reason}")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_the_first_groups_of_their_patterns() {
        let patterns = |pattern: &str| LinePatterns::new(&[("loss".to_owned(), pattern.to_owned())].into());
        let figures = patterns(r"lm loss: (\S+)").unwrap().figures("iteration 3 | lm loss: 1,234.5E-1 |");
        assert_eq!(figures["loss"], 123.45);
        assert!(patterns(r"loss: (\S+)").unwrap().figures("loss: none").is_empty());
        assert!(patterns(r"loss: (nan)").unwrap().figures("loss: nan")["loss"].is_nan());
        assert_eq!(patterns("loss").unwrap_err(), "`loss` has no group in parentheses for the figure");
        assert!(patterns("(").unwrap_err().starts_with("`loss` is no regular expression: "));
    }

    #[test]
    fn a_program_on_several_devices_gets_the_variables_of_its_rank() {
        let group = ProcessGroup {
            rank: 3,
            size: 4,
            node_rank: 1,
            local_rank: 1,
            local_size: 2,
            master_address: "h1".to_owned(),
            master_port: 29501,
            ..ProcessGroup::default()
        };
        let variables = rank_variables(&group, 2).unwrap().into_iter().map(|(name, value)| format!("{name}={value}"));
        let expected = "RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 NODE_RANK=1 GROUP_RANK=1 MASTER_PORT=29503 \
                        MASTER_ADDR=h1";
        assert_eq!(variables.collect::<Vec<_>>().join(" "), expected);
    }

    #[test]
    fn names_in_braces_stand_for_values_and_other_braces_for_themselves() {
        let value = |name: &str| (name == "seed").then(|| "7".to_owned());
        let filled = |text| fill_placeholders(text, value);
        assert_eq!(filled("--seed={seed},{seed}").as_deref(), Ok("--seed=7,7"));
        assert_eq!(filled("{\"a\": {}} {").as_deref(), Ok("{\"a\": {}} {"));
        assert_eq!(filled("--x={sede}"), Err("sede".to_owned()));
    }
}
