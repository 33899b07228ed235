//! `flagperf ablate`: measures what each switch of a case changes.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueHint};
use flagperf_comparison::{Ablation, Combination, MeasuredCombination, combinations};
use indexmap::IndexMap;

use super::ablate_page::ablation_page;
use super::ablate_text::{ablation_text, combination_name};
use super::blocks::Subject;
use super::output::{check_page_file, counted, print_message, print_mistake, print_result, write_file};
use super::selection::Selection;
use flagperf_config::{Origin, Switch, did_you_mean, nearest};
use flagperf_core::exit_code;
use flagperf_core::text::{escape_json, one_line};
use flagperf_prepare::Prepared;
use flagperf_report::columns;

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

/// Measures the switches of a case and prints what each changes.
pub(super) fn ablate(arguments: &AblateArguments) -> anyhow::Result<ExitCode> {
    if let Some(Err(message)) = arguments.html.as_deref().map(check_page_file) {
        return Ok(print_mistake(&message));
    }
    let subject = match Subject::new(&arguments.selection, "ablate")? {
        Ok(subject) => subject,
        Err(code) => return Ok(code),
    };
    let (switches, unavailable) = match choose_switches(&subject, &arguments.switch) {
        Ok(switches) => usable(&subject, switches),
        Err(message) => return Ok(print_mistake(&message)),
    };
    for (name, reason) in &unavailable {
        print_message(&format!("warning: switch `{name}` cannot be used here: {reason}"));
    }
    if switches.is_empty() {
        return Ok(print_mistake("no switch of this case can be used here"));
    }
    let (case, rounds) = (subject.case(), usize::from(arguments.rounds));
    let combinations = combinations(switches.len());
    print_message(&format!("{} in {rounds} rounds", counted(combinations.len(), "combination")));
    let variants = combinations.iter().map(|on| {
        let names: Vec<String> =
            switches.iter().zip(on).filter(|(_, on)| **on).map(|(switch, _)| switch.name.clone()).collect();
        (combination_name(&names, switches.len()), subject.prepare(settings(&switches, on)))
    });
    let variants = variants.collect();
    let (measured, is_interrupted) = match subject.measure(variants, rounds)? {
        Ok(measured) => measured,
        Err(code) => return Ok(code),
    };
    if measured.iter().all(|variant| variant.side.results.is_empty()) && is_interrupted {
        return Ok(ExitCode::from(exit_code::INTERRUPTED));
    }
    let measured: Vec<MeasuredCombination> =
        combinations.into_iter().zip(measured).map(|(on, variant)| MeasuredCombination { on, variant }).collect();
    let ablation = Ablation { unavailable, is_interrupted, ..Ablation::new(case, &switches, &measured) };
    let code = match () {
        () if is_interrupted => exit_code::INTERRUPTED,
        () if ablation.is_sound() => exit_code::OK,
        () => exit_code::FAILED,
    };
    print(arguments, &ablation, code)
}

fn print(arguments: &AblateArguments, ablation: &Ablation, mut code: u8) -> anyhow::Result<ExitCode> {
    if let Some(path) = &arguments.html
        && let Err(message) = write_file(path, &ablation_page(ablation))
    {
        print_message(&format!("error: {message}"));
        code = code.max(exit_code::UNWRITTEN);
    }
    let text = match arguments.json {
        true => format!("{}\n", escape_json(&serde_json::to_string_pretty(ablation)?)),
        false => ablation_text(ablation, columns()),
    };
    Ok(print_result(&text, code))
}

/// Returns the switches of a case, or those that `names` chooses.
fn choose_switches(subject: &Subject, names: &[String]) -> Result<Vec<Switch>, String> {
    let Prepared { plan, values } = &subject.standard;
    let (case, key) = (subject.case(), &plan.cases[0].key);
    let value = values.iter().find(|value| value.key == "switches" && value.section == case);
    let (known, origin) =
        value.map_or((Vec::new(), Origin::Default), |value| (Switch::of_value(&value.value), value.origin.clone()));
    if known.is_empty() {
        let file = key.settings_file().path(&key.case);
        return Err(format!(
            "case `{case}` has no switches\n  hint: list them in {file} or in the vendor's overlay, such as `switches: [{{name: amp, off: {{fp16: \
             false}}, on: {{fp16: true}}}}]`"
        ));
    }
    let mut chosen: Vec<Switch> = Vec::new();
    for name in names {
        let found = known.iter().find(|switch| switch.name == *name).ok_or_else(|| {
            let all: Vec<&str> = known.iter().map(|switch| switch.name.as_str()).collect();
            let hint = did_you_mean(nearest(name, all.iter().copied()), &format!("its switches: {}", all.join(", ")));
            format!("case `{case}` has no switch `{}` ({origin})\n  hint: {hint}", one_line(name))
        })?;
        if chosen.contains(found) {
            return Err(format!("`--switch {name}` is given twice"));
        }
        chosen.push(found.clone());
    }
    let switches = if names.is_empty() { known } else { chosen };
    for switch in &switches {
        if let Some(set) = subject.set_of(|key| switch.on.contains_key(key)) {
            return Err(format!(
                "`--set {}`: the switch `{}` sets this key\n  hint: choose the other switches with --switch NAME",
                one_line(set),
                switch.name
            ));
        }
    }
    Ok(switches)
}

/// Returns the settings of a combination.
fn settings(switches: &[Switch], combination: &[bool]) -> impl Iterator<Item = String> {
    switches.iter().zip(combination).flat_map(|(switch, is_on)| switch.settings(*is_on))
}

/// Returns the switches that can be off and on here, each beside those before it, which are off; and of the others, the reason.
fn usable(subject: &Subject, switches: Vec<Switch>) -> (Vec<Switch>, IndexMap<String, String>) {
    let (mut usable, mut unavailable): (Vec<Switch>, _) = (Vec::new(), IndexMap::new());
    for switch in switches {
        let mut with_it = usable.clone();
        with_it.push(switch.clone());
        let mut combination: Combination = vec![false; with_it.len()];
        let prepared = subject.prepare(settings(&with_it, &combination)).and_then(|_| {
            combination[usable.len()] = true;
            subject.prepare(settings(&with_it, &combination))
        });
        match prepared {
            Ok(_) => usable = with_it,
            Err(reason) => {
                unavailable.insert(switch.name, reason);
            }
        }
    }
    (usable, unavailable)
}
