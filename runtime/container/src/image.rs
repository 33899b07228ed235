//! Images: built from a recipe unless an image with the same content exists, and extended by the packages that a case requires.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use bollard::models::{BuildInfo, ImageInspect};
use bollard::query_parameters::{BuildImageOptions, ListImagesOptions};
use futures_util::StreamExt;
use tokio::time::timeout;

use super::engine::{ANSWER_LIMIT, message};
use super::recipe::{BaseImageLine, archive};
use super::requirements::Requirements;
use super::{ContainerEngine, ContainerError, Recipe};
use flagperf_core::text::{one_line, truncate};

/// Label with the hash of the recipe.
const RECIPE_LABEL: &str = "flagperf.recipe";
/// Label with the hash of the requirements, the base image and the package index.
const REQUIREMENTS_LABEL: &str = "flagperf.requirements";
/// Label with the stage that produced an image. An image inherits the labels of its base image, so every stage has its own
/// value.
const STAGE_LABEL: &str = "flagperf.stage";
/// The stages: the Dockerfile alone, the recipe with its install script, the packages that a case requires.
const DOCKERFILE_STAGE: &str = "dockerfile";
const RECIPE_STAGE: &str = "recipe";
const REQUIREMENTS_STAGE: &str = "requirements";
/// Digits of a hash in a tag.
const TAG_DIGITS: usize = 12;
/// Time without output of a build after which the conductor checks for an interruption.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Longest time without output of a build, for example during the download of a large package: half an hour, which is
/// FlagPerf's time limit of an install script.
const SILENCE_LIMIT: Duration = Duration::from_secs(1800);
/// Number of last lines of a build's output that an error quotes, and largest number of bytes of each.
const LINES_KEPT: usize = 20;
const LINE_BYTES_KEPT: usize = 1 << 10;
/// The escape sequences with which an engine marks the text of standard error red.
const COLOURS: [&str; 2] = ["\x1b[91m", "\x1b[0m"];
/// Beginnings of the lines of a build's output that are shown as progress, and of those that begin a step.
const PROGRESS: [&str; 3] = ["Step ", "STEP ", "Pulling from "];
const STEPS: [&str; 2] = ["Step ", "STEP "];
/// Beginnings of lines about the engine's own work, which explain no failure.
const ENGINE_LINES: [&str; 2] = [" ---> ", "Removing intermediate container "];
/// Largest number of bytes of the failed command in an error.
const COMMAND_BYTES_KEPT: usize = 80;

/// An image in which a case runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Name and tag.
    pub name: String,
    /// Id: the digest of its configuration.
    pub id: String,
    /// SHA-256 of the recipe.
    pub recipe_sha256: String,
    /// The images on which the Dockerfile builds.
    pub base: Vec<BaseImage>,
}

/// An image on which a recipe builds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseImage {
    /// The name in the Dockerfile.
    pub name: String,
    /// Id; `None` if the engine no longer has the image.
    pub id: Option<String>,
    /// Digests in the registries that it came from.
    pub digests: Vec<String>,
}

/// Finds and builds images.
pub struct ImageBuilder<'b> {
    engine: &'b ContainerEngine,
    progress: &'b mut dyn FnMut(&str),
    keep_going: &'b dyn Fn() -> bool,
}

impl<'b> ImageBuilder<'b> {
    /// Creates a builder that reports each step to `progress`, and stops when `keep_going` returns false.
    pub fn new(
        engine: &'b ContainerEngine,
        progress: &'b mut dyn FnMut(&str),
        keep_going: &'b dyn Fn() -> bool,
    ) -> Self {
        ImageBuilder { engine, progress, keep_going }
    }

    /// Returns the image of a recipe, and builds it unless an image with the same content exists.
    ///
    /// # Errors
    /// When the engine does not answer, or the build fails.
    pub fn image_of(&mut self, recipe: &Recipe) -> Result<Image, ContainerError> {
        let sha256 = recipe.sha256();
        let short = &sha256[..TAG_DIGITS];
        let labels = |stage| [(RECIPE_LABEL.to_owned(), sha256.clone()), (STAGE_LABEL.to_owned(), stage)].into();
        let name = format!("{}:{short}", recipe.repository);
        let (built, complete) = (DOCKERFILE_STAGE.to_owned(), RECIPE_STAGE.to_owned());
        let id = match (self.find(&labels(complete.clone()))?, &recipe.install_script) {
            (Some(id), _) => id,
            (None, None) => self.build_dockerfile(&name, labels(complete), recipe)?,
            (None, Some(script)) => {
                let below = format!("{}:{short}-dockerfile", recipe.repository);
                let below = match self.find(&labels(built.clone()))? {
                    Some(id) => id,
                    None => self.build_dockerfile(&below, labels(built), recipe)?,
                };
                let dockerfile = install_dockerfile(&below, script);
                self.build(&name, labels(complete), self.context(&name, recipe, Some(&dockerfile))?)?
            }
        };
        let base = recipe.base_images().into_iter().map(|base| self.base_image(base.name)).collect::<Result<_, _>>()?;
        Ok(Image { name, id, recipe_sha256: sha256, base })
    }

    /// Returns an image with the packages that a case requires, and builds it unless an image with the same content exists.
    ///
    /// # Errors
    /// When the engine does not answer, or the packages cannot be installed.
    pub fn with_requirements(&mut self, image: Image, requirements: &Requirements) -> Result<Image, ContainerError> {
        let sha256 = requirements.sha256(&image.id);
        let labels: HashMap<_, _> = [(REQUIREMENTS_LABEL, sha256.as_str()), (STAGE_LABEL, REQUIREMENTS_STAGE)]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        let name = format!("{}-requirements-{}", image.name, &sha256[..TAG_DIGITS]);
        let id = match self.find(&labels)? {
            Some(id) => id,
            None => {
                let context =
                    archive(&requirements.context(&image.id)).map_err(|error| not_built(&name, &error.to_string()))?;
                self.build(&name, labels, context)?
            }
        };
        Ok(Image { name, id, ..image })
    }

    fn context(&self, name: &str, recipe: &Recipe, dockerfile: Option<&str>) -> Result<Vec<u8>, ContainerError> {
        recipe.archive(dockerfile).map_err(|error| not_built(name, &error.to_string()))
    }

    /// Returns the id of an image with these labels.
    fn find(&self, labels: &HashMap<String, String>) -> Result<Option<String>, ContainerError> {
        // With several labels as filters, Podman 3 lists images that have any of them, and Podman 4.3 lists none. So only one
        // label is a filter.
        let hash = labels.iter().filter(|(name, _)| *name != STAGE_LABEL);
        let wanted = hash.map(|(name, value)| format!("{name}={value}")).collect();
        let filters = Some([("label".to_owned(), wanted)].into());
        let options = ListImagesOptions { filters, ..ListImagesOptions::default() };
        let found =
            self.engine.request("list images", ANSWER_LIMIT, async |docker| docker.list_images(Some(options)).await)?;
        let mut found =
            found.into_iter().filter(|image| labels.iter().all(|(name, value)| image.labels.get(name) == Some(value)));
        Ok(found.next().map(|image| image.id))
    }

    fn base_image(&self, name: String) -> Result<BaseImage, ContainerError> {
        match self.inspect(&name) {
            Ok(ImageInspect { id, repo_digests, .. }) => {
                Ok(BaseImage { name, id, digests: repo_digests.unwrap_or_default() })
            }
            Err(error) if error.is_missing() => Ok(BaseImage { name, id: None, digests: Vec::new() }),
            Err(error) => Err(error),
        }
    }

    fn inspect(&self, name: &str) -> Result<ImageInspect, ContainerError> {
        self.engine.request("inspect an image", ANSWER_LIMIT, async |docker| docker.inspect_image(name).await)
    }

    /// Builds the image of the Dockerfile of a recipe and returns its id.
    fn build_dockerfile(
        &mut self,
        name: &str,
        labels: HashMap<String, String>,
        recipe: &Recipe,
    ) -> Result<String, ContainerError> {
        let built = self.build(name, labels, self.context(name, recipe, None)?);
        let Err(ContainerError::Build { reason, .. }) = &built else { return built };
        let Some(BaseImageLine { name: image, line }) = self.missing_base(recipe) else { return built };
        Err(ContainerError::BaseImage { image, dockerfile: recipe.dockerfile(), line, reason: reason.clone() })
    }

    /// Returns the first base image of a recipe that the engine does not have.
    fn missing_base(&self, recipe: &Recipe) -> Option<BaseImageLine> {
        let is_missing = |base: &BaseImageLine| self.inspect(&base.name).is_err_and(|error| error.is_missing());
        recipe.base_images().into_iter().find(is_missing)
    }

    /// Builds an image and returns its id.
    fn build(
        &mut self,
        name: &str,
        labels: HashMap<String, String>,
        context: Vec<u8>,
    ) -> Result<String, ContainerError> {
        (self.progress)(&format!("building image {name}"));
        let options = BuildImageOptions {
            t: Some(name.to_owned()),
            labels: Some(labels),
            forcerm: true,
            ..BuildImageOptions::default()
        };
        let mut output = BuildOutput::default();
        let (progress, keep_going) = (&mut *self.progress, self.keep_going);
        let outcome = self.engine.run(async |docker| {
            let body = bollard::body_full(context.into());
            let mut stream = std::pin::pin!(docker.build_image(options, None, Some(body)));
            let mut silence = Duration::ZERO;
            loop {
                match timeout(POLL_INTERVAL, stream.next()).await {
                    Ok(None) => return Ok(()),
                    Ok(Some(Ok(info))) => output.add(info, progress),
                    Ok(Some(Err(error))) => return Err(not_built(name, &message(&error))),
                    Err(_) if !keep_going() => return Err(ContainerError::Interrupted),
                    Err(_) if silence >= SILENCE_LIMIT => {
                        let limit = SILENCE_LIMIT.as_secs();
                        return Err(not_built(name, &format!("the build printed nothing for {limit} s")));
                    }
                    Err(_) => {
                        silence += POLL_INTERVAL;
                        continue;
                    }
                }
                silence = Duration::ZERO;
            }
        });
        let outcome = outcome.and_then(|()| self.inspect(name));
        match outcome {
            Ok(image) => Ok(image.id.unwrap_or_default()),
            Err(ContainerError::Build { image, reason, .. }) => {
                Err(ContainerError::Build { image, reason, output: output.last.into() })
            }
            Err(error) => Err(error),
        }
    }
}

/// The output of a build.
#[derive(Debug, Default)]
struct BuildOutput {
    /// The beginning of a line whose end has not arrived yet.
    open: String,
    last: VecDeque<String>,
}

impl BuildOutput {
    fn add(&mut self, info: BuildInfo, progress: &mut dyn FnMut(&str)) {
        let status = info.status.filter(|_| info.progress_detail.is_none()).map(|status| status + "\n");
        let text = info.stream.or(status).unwrap_or_default();
        // Docker adds colours to the standard error of programs.
        self.open += &COLOURS.iter().fold(text, |text, colour| text.replace(colour, ""));
        while let Some((line, rest)) = self.open.split_once('\n') {
            let line = one_line(&truncate(line.trim_end(), LINE_BYTES_KEPT)).into_owned();
            self.open = rest.to_owned();
            if PROGRESS.iter().any(|begin| line.starts_with(begin)) {
                progress(&line);
            }
            let begins_with = |texts: &[&str]| texts.iter().any(|text| line.starts_with(text));
            if begins_with(&STEPS) {
                // The output of earlier steps does not explain why this step fails.
                self.last.clear();
            } else if !line.is_empty() && !begins_with(&ENGINE_LINES) {
                self.last.push_back(line);
            }
        }
        self.open.truncate(self.open.floor_char_boundary(LINE_BYTES_KEPT));
        while self.last.len() > LINES_KEPT {
            self.last.pop_front();
        }
    }
}

fn not_built(image: &str, reason: &str) -> ContainerError {
    ContainerError::Build { image: image.to_owned(), reason: with_short_command(reason), output: Vec::new() }
}

/// Shortens the command in the message `The command '..' returned a non-zero code: 1`.
fn with_short_command(message: &str) -> String {
    let parts = message.split_once('\'').and_then(|(begin, rest)| Some((begin, rest.rsplit_once('\'')?)));
    match parts {
        Some((begin, (command, end))) => format!("{begin}'{}'{end}", truncate(command, COMMAND_BYTES_KEPT)),
        None => message.to_owned(),
    }
}

/// Returns the Dockerfile that runs an install script on top of an image. A script of FlagPerf finds the recipe under the path
/// that it has there.
fn install_dockerfile(image: &str, script: &str) -> String {
    const RUN: &str = "[ -e /workspace/docker_image ] || { mkdir -p /workspace && ln -s /opt/flagperf/recipe \
        /workspace/docker_image; } && cd /opt/flagperf/recipe && exec bash \"$0\"";
    let run = serde_json::json!(["/bin/bash", "-c", RUN, script]);
    format!("FROM {image}\nUSER root\nCOPY . /opt/flagperf/recipe/\nRUN {run}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_progress_and_the_last_lines_are_kept_whatever_arrives() {
        let (mut output, mut shown) = (BuildOutput::default(), Vec::new());
        let mut add = |text: &str| {
            let info = BuildInfo { stream: Some(text.to_owned()), ..BuildInfo::default() };
            output.add(info, &mut |line| shown.push(line.to_owned()));
        };
        add("Step 1/2 : FROM a\nline of step 1\n ---> 1");
        add("23\nStep 2/2 : RUN x\n ---> Running in 1\n");
        (0..50).for_each(|number| add(&format!("line {number}\n")));
        add(&"x".repeat(1 << 20));
        add("\x1b[2J\n");
        add("\x1b[91mERROR: no such package\n");
        add("\x1b[0m");
        assert_eq!(shown, ["Step 1/2 : FROM a", "Step 2/2 : RUN x"]);
        assert_eq!((output.last.len(), output.last[0].as_str()), (LINES_KEPT, "line 32"));
        assert!(output.last[LINES_KEPT - 2].len() <= LINE_BYTES_KEPT + 40);
        assert_eq!(output.last[LINES_KEPT - 1], "ERROR: no such package");
    }

    #[test]
    fn an_error_quotes_only_the_step_that_failed_and_a_part_of_its_command() {
        let (mut output, mut ignore) = (BuildOutput::default(), |_: &str| ());
        let text = "Step 1/2 : FROM a\nfirst\n ---> 1\nStep 2/2 : RUN x\n ---> Running in 2\nERROR: x\n";
        output.add(BuildInfo { stream: Some(text.to_owned()), ..BuildInfo::default() }, &mut ignore);
        assert_eq!(output.last, ["ERROR: x"]);
        let message = format!("The command '{} it's' returned a non-zero code: 1", "x".repeat(500));
        let expected = format!("The command '{}... (425 more bytes)' returned a non-zero code: 1", "x".repeat(80));
        assert_eq!(with_short_command(&message), expected);
        assert_eq!(with_short_command("no space left"), "no space left");
    }

    #[test]
    fn an_install_script_runs_in_the_folder_of_the_recipe() {
        let dockerfile = install_dockerfile("sha256:00", "x_install.sh");
        assert!(dockerfile.starts_with("FROM sha256:00\nUSER root\nCOPY . /opt/flagperf/recipe/\nRUN [\"/bin/bash\""));
        // FlagPerf's scripts name the folder by this path.
        assert!(dockerfile.contains("ln -s /opt/flagperf/recipe /workspace/docker_image"), "{dockerfile}");
    }
}
