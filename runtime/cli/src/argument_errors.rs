//! Messages for wrong arguments: what is expected, and which argument was probably meant.

/// Returns the text of help or of a version, with colours on a terminal that has them.
pub(super) fn rendered(error: &clap::Error) -> String {
    let text = error.render();
    if console::colors_enabled() && console::Term::stdout().is_term() {
        text.ansi().to_string()
    } else {
        text.to_string()
    }
}

/// Adds to the error about an argument without a name how a case is given: `flagperf run resnet50`.
pub(super) fn suggest_case(error: &mut clap::Error) {
    use clap::error::{ContextKind, ContextValue, ErrorKind};
    let argument = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(argument)) if error.kind() == ErrorKind::UnknownArgument => argument.clone(),
        _ => return,
    };
    let commands = ["run", "plan", "doctor"].map(|command| format!("flagperf {command} "));
    let usage = error.get(ContextKind::Usage).map(ToString::to_string).unwrap_or_default();
    if !argument.starts_with('-') && commands.iter().any(|command| usage.contains(command.as_str())) {
        let tip = format!("a case is given by its name: `--case {argument}`").into();
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::super::Arguments;
    use super::*;

    #[test]
    fn an_argument_without_a_name_is_proposed_as_a_case() {
        let message = |words: &[&str]| {
            let mut error = Arguments::try_parse_from(words).unwrap_err();
            suggest_case(&mut error);
            error.to_string()
        };
        assert!(
            message(&["flagperf", "run", "resnet50"]).contains("tip: a case is given by its name: `--case resnet50`")
        );
        assert!(!message(&["flagperf", "run", "--cas"]).contains("a case is given"));
        assert!(!message(&["flagperf", "work", "x"]).contains("a case is given"));
        assert!(message(&["flagperf", "list"]).contains("<cases|vendors|engines|options>"));
    }
}
