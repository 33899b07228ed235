//! `flagperf ablate`: measures what each switch of a case changes.

use std::process::ExitCode;

use clap::{Args, ValueHint};
use flagperf_comparison::{Ablation, Combination, MeasuredCombination, combinations};
use indexmap::IndexMap;

use super::ablate_page::ablation_page;
use super::ablate_text::{ablation_text, combination_name};
use super::blocks::{Measured, Subject, VariantArguments};
use super::output::{print_message, print_mistake};
use flagperf_config::{Origin, Switch, did_you_mean, nearest};
use flagperf_core::text::one_line;
use flagperf_prepare::Prepared;

#[derive(Debug, Args)]
pub(super) struct AblateArguments {
    /// Only this switch of the case; repeatable, in this order [default: all, in the order of the file]
    #[arg(long, value_name = "NAME", value_hint = ValueHint::Other)]
    switch: Vec<String>,
    #[command(flatten)]
    common: VariantArguments,
}

/// Measures the switches of a case and prints what each changes.
pub(super) fn ablate(arguments: &AblateArguments) -> anyhow::Result<ExitCode> {
    let subject = match Subject::new(&arguments.common, "ablate")? {
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
    let case = subject.case();
    let combinations = combinations(switches.len());
    let variants = combinations.iter().map(|on| {
        let names: Vec<String> =
            switches.iter().zip(on).filter(|(_, on)| **on).map(|(switch, _)| switch.name.clone()).collect();
        (combination_name(&names, switches.len()), subject.prepare(settings(&switches, on)))
    });
    let variants = variants.collect();
    let Measured { variants, is_interrupted } = match subject.measure("combination", variants)? {
        Ok(measured) => measured,
        Err(code) => return Ok(code),
    };
    let measured: Vec<MeasuredCombination> =
        combinations.into_iter().zip(variants).map(|(on, variant)| MeasuredCombination { on, variant }).collect();
    let ablation = Ablation { unavailable, is_interrupted, ..Ablation::new(case, &switches, &measured, true) };
    arguments.common.print(&ablation, (is_interrupted, ablation.is_sound()), ablation_page, ablation_text)
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
