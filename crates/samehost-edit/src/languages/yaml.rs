//! YAML with the position of every node in the text. Nothing is resolved: aliases stay aliases, and `<<` is a key.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::ops::Range;

use saphyr_parser::{Event, Parser, ScalarStyle};

use crate::budget;
use crate::lines::around;
use crate::refusal::{Refusal, Result};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) range: Range<usize>,
    /// From 1.
    pub(crate) line: u32,
    /// Number of its anchor; 0 if it has none.
    pub(crate) anchor: usize,
    pub(crate) kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A scalar by its value; `quoted` also for blocks, and `simple` if its bytes can be replaced in place.
    Scalar {
        text: String,
        quoted: bool,
        simple: bool,
    },
    Map(Pairs),
    List(Vec<Node>),
    Alias(usize),
}

/// Up to here keys are compared one by one.
const FEW: usize = 8;

/// The keys and values of a map in order, and where each key stands.
/// Editors ask for as many names as a file has, so that a look at every key for each of them grows with the square of the
/// lines (`tests/steps` counts). Only a map of more than a few keys has an index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pairs {
    list: Vec<(Node, Node)>,
    /// The last place of a key and whether it stands in several; empty if there are few.
    places: HashMap<String, (usize, bool)>,
}

impl std::ops::Deref for Pairs {
    type Target = [(Node, Node)];

    fn deref(&self) -> &[(Node, Node)] {
        &self.list
    }
}

impl From<Vec<(Node, Node)>> for Pairs {
    fn from(list: Vec<(Node, Node)>) -> Self {
        let mut places: HashMap<String, (usize, bool)> = HashMap::new();
        if list.len() > FEW {
            for (place, (key, _)) in list.iter().enumerate() {
                let Some(name) = key.text() else { continue };
                let known = places.entry(name.to_owned()).and_modify(|(_, twice)| *twice = true);
                known.or_insert((place, false)).0 = place;
            }
        }
        Pairs { list, places }
    }
}

impl Pairs {
    /// The last place of a key, and whether it stands in several.
    fn place(&self, name: &str) -> Option<(usize, bool)> {
        if self.list.len() > FEW {
            return self.places.get(name).copied();
        }
        let last = self.list.iter().rposition(|(key, _)| key.text() == Some(name))?;
        let is_twice = self.list[..last].iter().any(|(key, _)| key.text() == Some(name));
        Some((last, is_twice))
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Document {
    pub(crate) root: Node,
    /// The way to each anchor: which child of which.
    anchors: OnceCell<HashMap<usize, Vec<usize>>>,
}

/// Deeper than any configuration.
const DEEPEST: usize = 40;
/// Steps of a node.
const STEPS: usize = 100;

impl Document {
    pub(crate) fn parse(text: &str) -> Result<Document> {
        let mut documents = Document::parse_all(text)?.into_iter();
        match (documents.next(), documents.next()) {
            (Some(one), None) => Ok(one),
            (Some(_), Some(second)) => Err(not_yaml(second.root.line, "it has several documents")),
            (None, _) => Err(not_yaml(0, "it is empty")),
        }
    }

    pub(crate) fn parse_all(text: &str) -> Result<Vec<Document>> {
        // The parser counts characters, and asks in their order: those of ASCII need no list.
        let bytes =
            if text.is_ascii() { Vec::new() } else { text.char_indices().map(|(at, _)| at).collect() };
        budget::hold(size_of_val(bytes.as_slice()));
        let mut reader = Reader { text, bytes, events: Parser::new_from_str(text) };
        let mut documents = Vec::new();
        loop {
            match reader.next()? {
                (Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd | Event::Nothing, ..) => {}
                (Event::StreamEnd, ..) => return Ok(documents),
                (event, range, line) => {
                    let root = reader.node(event, range, line, 0)?;
                    documents.push(Document { root, anchors: OnceCell::new() });
                }
            }
        }
    }

    pub(crate) fn resolve<'a>(&'a self, node: &'a Node) -> &'a Node {
        match node.kind {
            Kind::Alias(anchor) => self.anchored(anchor).unwrap_or(node),
            _ => node,
        }
    }

    fn anchored(&self, anchor: usize) -> Option<&Node> {
        let anchors = self.anchors.get_or_init(|| {
            let mut anchors = HashMap::new();
            note_anchors(&self.root, &mut Vec::new(), &mut anchors);
            anchors
        });
        let mut node = &self.root;
        for child in anchors.get(&anchor)? {
            node = node.child(*child)?;
        }
        Some(node)
    }
}

/// Notes the way to the first node of each anchor.
fn note_anchors(node: &Node, way: &mut Vec<usize>, anchors: &mut HashMap<usize, Vec<usize>>) {
    if node.anchor != 0 {
        anchors.entry(node.anchor).or_insert_with(|| way.clone());
    }
    for place in 0.. {
        let Some(child) = node.child(place) else { return };
        way.push(place);
        note_anchors(child, way, anchors);
        way.pop();
    }
}

impl Node {
    /// Keys and values, or values, one after the other.
    fn child(&self, place: usize) -> Option<&Node> {
        match &self.kind {
            Kind::Map(pairs) => {
                pairs.get(place / 2).map(|(key, value)| if place.is_multiple_of(2) { key } else { value })
            }
            Kind::List(values) => values.get(place),
            _ => None,
        }
    }

    /// Text of a scalar; `None` for null: `key:`, `~`, `null`.
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Scalar { text, quoted, .. } => {
                let is_null = !quoted && matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL");
                if is_null { None } else { Some(text) }
            }
            _ => None,
        }
    }

    /// Keys and values of a map; empty for everything else.
    pub(crate) fn pairs(&self) -> &[(Node, Node)] {
        match &self.kind {
            Kind::Map(pairs) => pairs,
            _ => &[],
        }
    }

    /// Key and value of a name in a map; the last if it appears twice.
    pub(crate) fn get(&self, name: &str) -> Option<&(Node, Node)> {
        let Kind::Map(pairs) = &self.kind else { return None };
        pairs.place(name).map(|(place, _)| &pairs[place])
    }

    /// The value of a name in a map; the last if it appears twice.
    pub(crate) fn value(&self, name: &str) -> Option<&Node> {
        self.get(name).map(|(_, value)| value)
    }

    /// The keys and values of the map at a name; empty if there is none.
    pub(crate) fn pairs_of(&self, name: &str) -> &[(Node, Node)] {
        self.value(name).map_or(&[], Node::pairs)
    }

    /// Which of the pairs of a map has a name; the last if it appears twice.
    pub(crate) fn place(&self, name: &str) -> Option<usize> {
        let Kind::Map(pairs) = &self.kind else { return None };
        pairs.place(name).map(|(place, _)| place)
    }

    pub(crate) fn twice(&self, name: &str) -> bool {
        let Kind::Map(pairs) = &self.kind else { return false };
        pairs.place(name).is_some_and(|(_, twice)| twice)
    }

    /// Range inside the quotes, if the value can be replaced in place.
    pub(crate) fn inside(&self) -> Option<Range<usize>> {
        match &self.kind {
            Kind::Scalar { simple: true, quoted, .. } => {
                let quote = usize::from(*quoted);
                Some(self.range.start + quote..self.range.end - quote)
            }
            _ => None,
        }
    }
}

fn not_yaml(line: u32, reason: &str) -> Refusal {
    Refusal::at(line, format!("it is not understood as YAML: {reason}"))
}

struct Reader<'a> {
    text: &'a str,
    bytes: Vec<usize>,
    events: Parser<'a, saphyr_parser::StrInput<'a>>,
}

impl<'a> Reader<'a> {
    /// Where a character stands.
    fn byte(&self, index: usize) -> usize {
        if self.bytes.is_empty() {
            return index.min(self.text.len());
        }
        self.bytes.get(index).copied().unwrap_or(self.text.len())
    }

    fn next(&mut self) -> Result<(Event<'a>, Range<usize>, u32)> {
        match self.events.next_event() {
            Some(Ok((event, span))) => {
                budget::at(u32::try_from(span.start.line()).unwrap_or(0));
                if !budget::step(STEPS) || !budget::hold(4 * size_of::<Node>()) {
                    return Err(not_yaml(0, "it takes too much"));
                }
                let [start, end] = [span.start.index(), span.end.index()].map(|index| self.byte(index));
                Ok((event, start..end, u32::try_from(span.start.line()).unwrap_or(0)))
            }
            Some(Err(error)) => {
                Err(not_yaml(u32::try_from(error.marker().line()).unwrap_or(0), error.info()))
            }
            None => Err(not_yaml(0, "it ends too early")),
        }
    }

    fn node(&mut self, event: Event<'a>, range: Range<usize>, line: u32, depth: usize) -> Result<Node> {
        if depth > DEEPEST {
            return Err(not_yaml(line, "it is nested too deep"));
        }
        let start = range.start;
        let (anchor, kind, range) = match event {
            Event::Alias(anchor) => (0, Kind::Alias(anchor), range),
            Event::Scalar(text, style, anchor, tag) => {
                let range = self.quoted(&text, style, range);
                let kind = self.scalar(text.into_owned(), style, &range, tag.is_some());
                (anchor, kind, range)
            }
            Event::SequenceStart(anchor, _) => {
                let mut values = Vec::new();
                loop {
                    match self.next()? {
                        (Event::SequenceEnd, end, _) => break (anchor, Kind::List(values), start..end.end),
                        (event, range, line) => values.push(self.node(event, range, line, depth + 1)?),
                    }
                }
            }
            Event::MappingStart(anchor, _) => {
                let mut pairs = Vec::new();
                loop {
                    match self.next()? {
                        (Event::MappingEnd, end, _) => {
                            break (anchor, Kind::Map(pairs.into()), start..end.end);
                        }
                        (event, range, line) => {
                            let key = self.node(event, range, line, depth + 1)?;
                            let (event, range, line) = self.next()?;
                            let value = self.node(event, range, line, depth + 1)?;
                            pairs.push((key, value));
                        }
                    }
                }
            }
            _ => return Err(not_yaml(line, "it is not understood")),
        };
        Ok(Node { range, line, anchor, kind })
    }

    /// Range of a quoted text: the parser includes what follows on its line.
    fn quoted(&self, text: &str, style: ScalarStyle, range: Range<usize>) -> Range<usize> {
        let quote = match style {
            ScalarStyle::SingleQuoted => '\'',
            ScalarStyle::DoubleQuoted => '"',
            _ => return range,
        };
        let written = format!("{quote}{text}{quote}");
        let is_there = self.text[range.start..].starts_with(&written);
        if is_there { range.start..range.start + written.len() } else { range }
    }

    fn scalar(&self, text: String, style: ScalarStyle, range: &Range<usize>, tagged: bool) -> Kind {
        let written = self.text.get(range.clone()).unwrap_or_default();
        let quoted = style != ScalarStyle::Plain;
        // The parser's range is only used if its bytes are exactly the value.
        let simple = !tagged
            && match style {
                ScalarStyle::Plain => written == text && !text.is_empty(),
                ScalarStyle::SingleQuoted => written == format!("'{text}'"),
                ScalarStyle::DoubleQuoted => written == format!("\"{text}\""),
                _ => false,
            };
        // An empty value has no position; the parser reports it as ~.
        let text = if quoted || !written.is_empty() { text } else { String::new() };
        Kind::Scalar { text, quoted, simple }
    }
}

/// The line of a byte, without its line break, and its start.
pub(crate) fn line_at(text: &str, at: usize) -> Range<usize> {
    let line = around(text.as_bytes(), at);
    let carriage_return = usize::from(text[line.clone()].ends_with('\r'));
    line.start..line.end - carriage_return
}

/// Line break of the line that ends at a byte; the file's if it has none.
pub(crate) fn newline_at(text: &str, end: usize) -> &'static str {
    match text.as_bytes().get(end) {
        Some(b'\r') => "\r\n",
        Some(_) => "\n",
        None if text.contains("\r\n") => "\r\n",
        None => "\n",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_its_place() {
        let text = "# ü\na: &x\n  b: 'c'\n  d: \"e\" # f\n  g:\nh: *x\ni: {j: k, l: [m, 1]}\n";
        let document = Document::parse(text).unwrap();
        let root = &document.root;
        let a = &root.get("a").unwrap().1;
        assert_eq!(&text[a.get("b").unwrap().1.inside().unwrap()], "c");
        assert_eq!(&text[a.get("d").unwrap().1.range.clone()], "\"e\"");
        assert_eq!(a.get("g").unwrap().1.text(), None);
        assert_eq!(document.resolve(&root.get("h").unwrap().1), a);
        let i = &root.get("i").unwrap().1;
        assert_eq!(&text[i.get("j").unwrap().1.range.clone()], "k");
        assert_eq!(a.get("d").unwrap().1.line, 4);
    }

    #[test]
    fn what_is_no_yaml_is_no_document() {
        for text in ["", "a: [", "a: b: c", "---\na\n---\nb\n", "\t- a: \"b"] {
            assert!(Document::parse(text).is_err(), "{text:?}");
        }
    }
}
