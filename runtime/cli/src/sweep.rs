//! `flagperf sweep`: measures a case with several values of one setting.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueHint};
use flagperf_comparison::Sweep;
use serde_json::Value;

use super::blocks::Subject;
use super::output::{check_page_file, counted, print_message, print_mistake, print_result, write_file};
use super::selection::Selection;
use super::sweep_page::sweep_page;
use super::sweep_text::sweep_text;
use flagperf_config::{Content, display_value, parse_yaml};
use flagperf_core::exit_code;
use flagperf_core::text::{escape_json, one_line};
use flagperf_report::columns;

/// Most values of a sweep.
const VALUES_MAX: usize = 64;

#[derive(Debug, Args)]
pub(super) struct SweepArguments {
    /// The setting and its values, such as `batch_size=1,2,4,8`
    #[arg(value_name = "KEY=VALUE,VALUE..", value_hint = ValueHint::Other)]
    setting: String,
    /// How often each value is measured, at least 2, in turns: forwards, backwards, and so on
    #[arg(long, value_name = "NUMBER", default_value_t = 4, value_parser = clap::value_parser!(u16).range(2..=1000))]
    rounds: u16,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
    /// Also write a page with a plot
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    html: Option<PathBuf>,
    #[command(flatten)]
    selection: Selection,
}

/// Measures a case with each value of a setting, and prints which value is enough.
pub(super) fn sweep(arguments: &SweepArguments) -> anyhow::Result<ExitCode> {
    let (key, values) = match read_setting(&arguments.setting) {
        Ok(setting) => setting,
        Err(message) => return Ok(print_mistake(&message)),
    };
    if let Some(Err(message)) = arguments.html.as_deref().map(check_page_file) {
        return Ok(print_mistake(&message));
    }
    let subject = match Subject::new(&arguments.selection, "sweep")? {
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
    let (case, rounds) = (subject.case(), usize::from(arguments.rounds));
    print_message(&format!("{} in {rounds} rounds", counted(values.len(), "value")));
    let name = |value: &Value| one_line(&format!("{key}={}", display_value(value))).into_owned();
    let variants = values.iter().map(name).zip(prepared).collect();
    let (measured, is_interrupted) = match subject.measure(variants, rounds)? {
        Ok(measured) => measured,
        Err(code) => return Ok(code),
    };
    if measured.iter().all(|variant| variant.side.results.is_empty()) && is_interrupted {
        return Ok(ExitCode::from(exit_code::INTERRUPTED));
    }
    let measured: Vec<_> = values.into_iter().zip(measured).collect();
    let sweep = Sweep { is_interrupted, ..Sweep::new(case, key, &measured) };
    let code = match () {
        () if is_interrupted => exit_code::INTERRUPTED,
        () if sweep.is_sound() => exit_code::OK,
        () => exit_code::FAILED,
    };
    print(arguments, &sweep, code)
}

fn print(arguments: &SweepArguments, sweep: &Sweep, mut code: u8) -> anyhow::Result<ExitCode> {
    if let Some(path) = &arguments.html
        && let Err(message) = write_file(path, &sweep_page(sweep))
    {
        print_message(&format!("error: {message}"));
        code = code.max(exit_code::UNWRITTEN);
    }
    let text = match arguments.json {
        true => format!("{}\n", escape_json(&serde_json::to_string_pretty(sweep)?)),
        false => sweep_text(sweep, columns()),
    };
    Ok(print_result(&text, code))
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
        assert_eq!(read("compiler=rten,\"tract\"").unwrap().1, [json!("rten"), json!("tract")]);
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
