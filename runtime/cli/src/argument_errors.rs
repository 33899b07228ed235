//! Messages for wrong arguments: what is expected, and which argument was probably meant.

use clap::CommandFactory as _;

use super::Arguments;
use flagperf_core::suggestion::nearest;

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

/// Adds the nearest command to the error about an unknown one. clap compares names in a way that finds none for short
/// ones: two exchanged letters of three are too many.
pub(super) fn suggest_command(error: &mut clap::Error) {
    use clap::error::{ContextKind, ContextValue, ErrorKind};
    let unknown = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(unknown)) if error.kind() == ErrorKind::InvalidSubcommand => unknown.clone(),
        _ => return,
    };
    if error.get(ContextKind::SuggestedSubcommand).is_some() {
        return;
    }
    let usage = error.get(ContextKind::Usage).map(ToString::to_string).unwrap_or_default();
    let root = Arguments::command();
    let parent = usage.split_whitespace().fold(&root, |command, word| command.find_subcommand(word).unwrap_or(command));
    let visible = parent.get_subcommands().filter(|command| !command.is_hide_set()).map(clap::Command::get_name);
    if let Some(near) = nearest(&unknown, visible) {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(vec![near.to_owned()]));
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

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

    #[test]
    fn a_misspelled_command_is_proposed_also_if_it_is_short() {
        let message = |words: &[&str]| {
            let mut error = Arguments::try_parse_from(words).unwrap_err();
            suggest_command(&mut error);
            error.to_string()
        };
        assert!(message(&["flagperf", "rnu"]).contains("tip: a similar subcommand exists: 'run'"));
        let nested = message(&["flagperf", "graph", "dfi"]);
        assert!(nested.contains("tip: a similar subcommand exists: 'diff'"), "{nested}");
        for unrelated in ["x", "zzzzzz"] {
            assert!(!message(&["flagperf", unrelated]).contains("tip"), "{unrelated}");
        }
    }
}
