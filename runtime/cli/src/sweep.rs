//! `flagperf sweep`: measures a case with several values of one setting.

use std::process::ExitCode;

use clap::{Args, ValueHint};
use flagperf_comparison::Sweep;
use serde_json::Value;

use super::blocks::{Measured, Subject, VariantArguments};
use super::output::{counted, print_message, print_mistake};
use super::sweep_page::sweep_page;
use super::sweep_text::sweep_text;
use flagperf_config::{Content, display_value, parse_yaml};
use flagperf_core::text::one_line;

/// Most values of a sweep.
const VALUES_MAX: usize = 64;

#[derive(Debug, Args)]
pub(super) struct SweepArguments {
    /// The setting and its values, such as `batch_size=1,2,4,8`
    #[arg(value_name = "KEY=VALUE,VALUE..", value_hint = ValueHint::Other)]
    setting: String,
    #[command(flatten)]
    common: VariantArguments,
}

/// Measures a case with each value of a setting, and prints which value is enough.
pub(super) fn sweep(arguments: &SweepArguments) -> anyhow::Result<ExitCode> {
    let (key, values) = match read_setting(&arguments.setting) {
        Ok(setting) => setting,
        Err(message) => return Ok(print_mistake(&message)),
    };
    let subject = match Subject::new(&arguments.common, "sweep")? {
        Ok(subject) => subject,
        Err(code) => return Ok(code),
    };
    if let Some(set) = subject.set_of(|set| set == key) {
        return Ok(print_mistake(&format!("`--set {}`: the sweep sets this key", one_line(set))));
    }
    let prepared: Vec<_> =
        values.iter().map(|value| subject.prepare(std::iter::once(format!("{key}={value}")))).collect();
    if let Some(Err(reason)) = prepared.first()
        && prepared.iter().all(Result::is_err)
    {
        return Ok(print_mistake(&format!("no value can be measured: {reason}")));
    }
    let case = subject.case();
    let name = |value: &Value| one_line(&format!("{key}={}", display_value(value))).into_owned();
    for (value, reason) in values.iter().zip(&prepared).filter_map(|(value, side)| Some((value, side.as_ref().err()?)))
    {
        print_message(&format!("warning: {} cannot be measured: {reason}", name(value)));
    }
    let variants = values.iter().map(name).zip(prepared).collect();
    let Measured { variants, is_interrupted } = match subject.measure("value", variants)? {
        Ok(measured) => measured,
        Err(code) => return Ok(code),
    };
    let measured: Vec<_> = values.into_iter().zip(variants).collect();
    let sweep = Sweep { is_interrupted, ..Sweep::new(case, key, &measured, true) };
    arguments.common.print(&sweep, (is_interrupted, sweep.is_sound()), sweep_page, sweep_text)
}

/// Returns the key of a setting and its values, which are those of a list in YAML.
fn read_setting(setting: &str) -> Result<(String, Vec<Value>), String> {
    let refused = |reason: String| {
        format!(
            "`{}`: {reason}\n  hint: for example `flagperf sweep batch_size=1,2,4,8 --case NAME`",
            one_line(setting)
        )
    };
    let Some((key, values)) = setting.split_once('=').filter(|(key, _)| !key.is_empty()) else {
        return Err(refused("not a key with its values".to_owned()));
    };
    let node = parse_yaml(&format!("[{values}]")).map_err(|error| refused(error.reason))?;
    let Content::List(items) = node.content else { return Err(refused("not a list of values".to_owned())) };
    let values: Vec<Value> = items.iter().map(flagperf_config::Node::value).collect();
    if !(2..=VALUES_MAX).contains(&values.len()) {
        return Err(refused(format!("{} (2 to {VALUES_MAX} are needed)", counted(values.len(), "value"))));
    }
    match values.iter().enumerate().find(|(index, value)| values[..*index].contains(value)) {
        Some((_, value)) => Err(refused(format!("the value {} is there twice", one_line(&value.to_string())))),
        None => Ok((key.to_owned(), values)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_those_of_a_list_in_yaml() {
        let read = |setting| read_setting(setting).map_err(|message| message.lines().next().unwrap().to_owned());
        assert_eq!(read("batch_size=1,2, 4"), Ok(("batch_size".to_owned(), vec![json!(1), json!(2), json!(4)])));
        assert_eq!(read("compiler=rten,\"openvino\"").unwrap().1, [json!("rten"), json!("openvino")]);
        assert_eq!(read("request={a: 1},{a: 2}").unwrap().1, [json!({"a": 1}), json!({"a": 2})]);
        for (setting, expected) in [
            ("batch_size", "`batch_size`: not a key with its values"),
            ("=1,2", "`=1,2`: not a key with its values"),
            ("batch_size=4", "`batch_size=4`: 1 value (2 to 64 are needed)"),
            ("batch_size=4,8,4", "`batch_size=4,8,4`: the value 4 is there twice"),
        ] {
            assert_eq!(read(setting), Err(expected.to_owned()));
        }
        assert!(read("batch_size=1,]").is_err());
    }
}
