//! `flagperf ablate`: measures what each switch of a case changes.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueHint};
use flagperf_comparison::{Ablation, Combination, MeasuredCombination, Side, combinations};
use indexmap::IndexMap;

use super::ablate_page::ablation_page;
use super::ablate_text::{ablation_text, combination_name};
use super::blocks::{Block, Blocks};
use super::output::{counted, print_message, print_mistake, print_result, write_file};
use super::result_printer::relative_path;
use super::selection::Selection;
use super::setup::{announce, check_choice, locate_checkout, prepare_process, print_findings, report_mistakes};
use flagperf_config::{Findings, Origin, Overrides, Switch, did_you_mean, nearest};
use flagperf_core::event::Level;
use flagperf_core::exit_code;
use flagperf_core::measure::{Clock as _, MonotonicClock, Nanos};
use flagperf_core::text::{escape_json, one_line};
use flagperf_core::units::Seconds;
use flagperf_fleet::needs_fleet;
use flagperf_prepare::{Prepared, prepare};
use flagperf_report::{columns, duration};

#[derive(Debug, Args)]
pub(super) struct AblateArguments {
    /// Only this switch of the case; repeatable, in this order [default: all, in the order of the file]
    #[arg(long, value_name = "NAME", value_hint = ValueHint::Other)]
    switch: Vec<String>,
    /// How often each combination of switches is measured, at least 2, in turns: forwards, backwards, and so on
    #[arg(long, value_name = "NUMBER", default_value_t = 4, value_parser = clap::value_parser!(u16).range(2..=1000))]
    rounds: u16,
    /// Print the effects as JSON
    #[arg(long)]
    json: bool,
    /// Also write a page with plots
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    html: Option<PathBuf>,
    #[command(flatten)]
    selection: Selection,
}

/// A case whose switches are measured.
struct Subject {
    checkout: PathBuf,
    overrides: Overrides,
    switches: Vec<Switch>,
    /// Switches that cannot be used here, with the reason.
    unavailable: IndexMap<String, String>,
}

/// Measures the switches of a case and prints what each changes.
pub(super) fn ablate(arguments: &AblateArguments) -> anyhow::Result<ExitCode> {
    let checkout = locate_checkout()?;
    if let Err(message) = check_choice(&checkout, &arguments.selection) {
        print_message(&message);
        return Ok(ExitCode::from(exit_code::MISTAKE));
    }
    let (checkout, overrides) = (announce(checkout), arguments.selection.overrides());
    let exits = prepare_process()?;
    let standard = match prepare(&checkout, &overrides) {
        Ok(standard) => standard,
        Err(findings) => return Ok(report_mistakes(&findings)),
    };
    print_findings(standard.plan.findings.iter());
    let [case] = &standard.plan.cases[..] else {
        return Ok(print_mistake("`ablate` measures one case\n  hint: choose it with --case NAME"));
    };
    if needs_fleet(&standard.plan) {
        return Ok(print_mistake("`ablate` measures a case on one device of this machine"));
    }
    let switches = match choose_switches(&standard, &arguments.switch, &overrides) {
        Ok(switches) => switches,
        Err(message) => return Ok(print_mistake(&message)),
    };
    let mut subject = Subject { checkout, overrides, switches: Vec::new(), unavailable: IndexMap::new() };
    subject.add_usable(switches);
    for (name, reason) in &subject.unavailable {
        print_message(&format!("warning: switch `{name}` cannot be used here: {reason}"));
    }
    if subject.switches.is_empty() {
        return Ok(print_mistake("no switch of this case can be used here"));
    }
    let blocks = match Blocks::start(&standard.plan.site, "measures switches")? {
        Ok(blocks) => blocks,
        Err(code) => return Ok(code),
    };
    drop(exits);
    let (measured, is_interrupted) = subject.measure(&blocks, usize::from(arguments.rounds));
    let ablation = Ablation {
        unavailable: subject.unavailable,
        ..Ablation::new(case.key.to_string(), &subject.switches, &measured)
    };
    let code = match () {
        () if is_interrupted => exit_code::INTERRUPTED,
        () if ablation.is_sound() => exit_code::OK,
        () => exit_code::FAILED,
    };
    print(arguments, &ablation, code)
}

fn print(arguments: &AblateArguments, ablation: &Ablation, code: u8) -> anyhow::Result<ExitCode> {
    if let Some(path) = &arguments.html
        && let Err(message) = write_file(path, &ablation_page(ablation))
    {
        print_message(&format!("error: {message}"));
    }
    let text = match arguments.json {
        true => format!("{}\n", escape_json(&serde_json::to_string_pretty(ablation)?)),
        false => ablation_text(ablation, columns()),
    };
    Ok(print_result(&text, code))
}

/// Returns the switches of a case, or those that `names` chooses.
fn choose_switches(
    Prepared { plan, values }: &Prepared,
    names: &[String],
    overrides: &Overrides,
) -> Result<Vec<Switch>, String> {
    let case = &plan.cases[0].key;
    if case.training.is_some() {
        return Err(format!("`{case}` is a training: `ablate` measures inference"));
    }
    let value = values.iter().find(|value| value.key == "switches" && value.section == case.to_string());
    let (known, origin) =
        value.map_or((Vec::new(), Origin::Default), |value| (Switch::of_value(&value.value), value.origin.clone()));
    if known.is_empty() {
        let file = case.settings_file().path(&case.case);
        return Err(format!(
            "case `{case}` has no switches ({origin})\n  hint: list them in {file}, such as `switches: [{{name: amp, off: {{fp16: \
             false}}, on: {{fp16: true}}}}]`"
        ));
    }
    let mut chosen: Vec<Switch> = Vec::new();
    for name in names {
        let found = known.iter().find(|switch| switch.name == *name).ok_or_else(|| {
            let all: Vec<&str> = known.iter().map(|switch| switch.name.as_str()).collect();
            let near = did_you_mean(nearest(name, all.iter().copied()), "");
            format!(
                "case `{case}` has no switch `{}` ({origin}){near}\n  hint: its switches: {}",
                one_line(name),
                all.join(", ")
            )
        })?;
        if chosen.contains(found) {
            return Err(format!("`--switch {name}` is given twice"));
        }
        chosen.push(found.clone());
    }
    let switches = if names.is_empty() { known } else { chosen };
    for set in &overrides.set {
        let key = set.split_once('=').map_or(set.as_str(), |(key, _)| key);
        if let Some(switch) = switches.iter().find(|switch| switch.on.contains_key(key)) {
            return Err(format!(
                "`--set {}`: the switch `{}` sets `{key}`\n  hint: choose the other switches with --switch NAME",
                one_line(set),
                switch.name
            ));
        }
    }
    Ok(switches)
}

impl Subject {
    /// Returns the plan of a combination of switches.
    fn prepare(&self, switches: &[Switch], combination: &[bool]) -> Result<Prepared, String> {
        let settings = switches.iter().zip(combination).flat_map(|(switch, is_on)| switch.settings(*is_on));
        let set = self.overrides.set.iter().cloned().chain(settings).collect();
        prepare(&self.checkout, &Overrides { set, ..self.overrides.clone() }).map_err(|findings| first_error(&findings))
    }

    /// Adds the switches that can be off and on here, each beside those before it, which are off.
    fn add_usable(&mut self, switches: Vec<Switch>) {
        for switch in switches {
            let mut with_it = self.switches.clone();
            with_it.push(switch.clone());
            let mut combination: Combination = vec![false; with_it.len()];
            let prepared = self.prepare(&with_it, &combination).and_then(|_| {
                combination[self.switches.len()] = true;
                self.prepare(&with_it, &combination)
            });
            match prepared {
                Ok(_) => self.switches = with_it,
                Err(reason) => {
                    self.unavailable.insert(switch.name, reason);
                }
            }
        }
    }

    /// Measures every combination in turns. Returns them with whether it was interrupted; the rounds that were complete then
    /// remain.
    fn measure(&self, blocks: &Blocks, rounds: usize) -> (Vec<MeasuredCombination>, bool) {
        let mut measured: Vec<MeasuredCombination> = Vec::new();
        let mut plans = Vec::new();
        for on in combinations(self.switches.len()) {
            let prepared = self.prepare(&self.switches, &on);
            let failure = prepared.as_ref().err().cloned();
            let name = combination_name(&self.names_of(&on), self.switches.len());
            measured.push(MeasuredCombination { on, side: Side { name, results: Vec::new() }, failure });
            plans.push(prepared.ok());
        }
        let count = measured.len();
        print_message(&format!(
            "{} of {} in {rounds} rounds",
            counted(count, "combination"),
            counted(self.switches.len(), "switch")
        ));
        let clock = MonotonicClock::start();
        for round in 0..rounds {
            if round == 1 {
                let took = clock.now().since(Nanos(0));
                let rest = duration(Seconds(took.0 * (rounds - 1) as f64));
                print_message(&format!(
                    "the first round took {}, so the others will take about {rest}",
                    duration(took)
                ));
            }
            for turn in 0..count {
                // Forwards, then backwards: what changes steadily with time then favours no combination.
                let index = if round % 2 == 0 { turn } else { count - 1 - turn };
                let combination = &mut measured[index];
                let (Some(plan), None) = (&plans[index], &combination.failure) else { continue };
                let block = round * count + turn + 1;
                print_message(&format!("block {block} of {}: {}", rounds * count, combination.side.name));
                match blocks.measure(plan) {
                    Block::Measured(folder, record) => combination.side.results.push((folder, *record)),
                    Block::Failed(folder, reason) => {
                        let shown = relative_path(&folder).display().to_string();
                        print_message(&format!("error: block {block} failed: {reason}\n  result {shown}"));
                        combination.failure = Some(reason);
                    }
                    Block::NotRun(reason) => {
                        print_message(&format!("error: block {block}: {reason}"));
                        combination.failure = Some(reason);
                    }
                    Block::Interrupted => {
                        print_message(&format!("interrupted after {}", counted(round, "complete round")));
                        measured.iter_mut().for_each(|combination| combination.side.results.truncate(round));
                        return (measured, true);
                    }
                }
            }
        }
        (measured, false)
    }

    /// Returns the names of the switches that are on.
    fn names_of(&self, on: &[bool]) -> Vec<String> {
        let on = self.switches.iter().zip(on).filter(|(_, is_on)| **is_on);
        on.map(|(switch, _)| switch.name.clone()).collect()
    }
}

/// Returns the first error of several findings.
fn first_error(findings: &Findings) -> String {
    let error = findings.0.iter().find(|finding| finding.level == Level::Error);
    error.map_or_else(|| findings.to_string(), |finding| one_line(&finding.message).into_owned())
}
