//! A page of tables and pictures in one file: no script, nothing to fetch, bright and dark. `page.html.jinja` is its form.

use minijinja::{Environment, Value, context};

use super::{DrawError, Figure};

/// The form; the ending makes texts safe.
const FORM: (&str, &str) = ("page.html", include_str!("page.html.jinja"));

/// A page under construction.
pub struct Page {
    title: String,
    about: String,
    blocks: Vec<Value>,
}

impl Page {
    /// A page with its title and a line below it.
    pub fn new(title: &str, about: &str) -> Self {
        Self { title: title.to_owned(), about: about.to_owned(), blocks: Vec::new() }
    }

    /// A heading of level 2 or 3.
    pub fn heading(&mut self, level: usize, text: &str) {
        self.blocks.push(context! { kind => "heading", level, text });
    }

    /// A paragraph.
    pub fn paragraph(&mut self, text: &str) {
        self.blocks.push(context! { kind => "paragraph", text });
    }

    /// A table; the first row is the header, and some columns hold words.
    pub fn table(&mut self, table: &[Vec<String>], words: &[&str]) {
        let Some((header, rows)) = table.split_first() else { return };
        let left: Vec<bool> = header.iter().map(|name| words.contains(&name.as_str())).collect();
        self.blocks.push(context! { kind => "table", header => header.clone(), rows => rows.to_vec(), left });
    }

    /// Terms with their meanings, folded under a title.
    pub fn terms(&mut self, title: &str, terms: &[(&str, &str)]) {
        let terms: Vec<Vec<String>> =
            terms.iter().map(|&(term, meaning)| vec![term.to_owned(), meaning.to_owned()]).collect();
        self.blocks.push(context! { kind => "terms", title, terms });
    }

    /// A picture inside the page, with its caption and the way to its data.
    pub fn figure(&mut self, figure: &Figure, picture: &str) {
        let (name, caption) = (figure.name.as_str(), figure.caption.as_str());
        self.blocks.push(context! { kind => "figure", name, caption, picture });
    }

    /// Lines of a terminal.
    pub fn lines(&mut self, text: &str) {
        self.blocks.push(context! { kind => "lines", text });
    }

    /// The whole page.
    ///
    /// # Errors
    /// If the form has a mistake.
    pub fn finish(self) -> Result<String, DrawError> {
        let Self { title, about, blocks } = self;
        let (name, form) = FORM;
        let page = context! { title => title.as_str(), about, blocks };
        let drawn = Environment::new().render_named_str(name, form, page);
        // The engine leaves the last line's end out.
        drawn.map(|page| page + "\n").map_err(|error| DrawError { figure: title, reason: error.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_every_block_and_texts_are_no_markup() {
        let mut page = Page::new("A <b>", "about");
        page.heading(2, "two");
        page.heading(3, "three");
        page.paragraph("said & done");
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        page.table(&[row(["run", "s"]), row(["<i>", "1.5"])], &["run"]);
        page.terms("What <it> means", &[("s", "seconds")]);
        page.figure(&Figure { name: "x".into(), caption: "seen".into(), ..Figure::default() }, "<svg></svg>\n");
        page.lines("a\n  b");
        let text = page.finish().unwrap();
        let (_, body) = text.split_once("<body>\n").unwrap();
        let expected = "<h1>A &lt;b&gt;</h1>\n<p class=\"muted\">about</p>\n<h2>two</h2>\n<h3>three</h3>\n\
                        <p class=\"muted\">said &amp; done</p>\n<div class=\"wide\"><table>\n\
                        <tr><th class=\"left\">run</th><th>s</th></tr>\n\
                        <tr><td class=\"left\">&lt;i&gt;</td><td>1.5</td></tr>\n</table></div>\n\
                        <details><summary>What &lt;it&gt; means</summary><dl>\n<dt>s</dt><dd>seconds</dd>\n</dl></details>\n\
                        <figure>\n<svg></svg>\n<figcaption>seen Data: <a href=\"plots/x.csv\">x.csv</a></figcaption>\n\
                        </figure>\n<pre>a\n  b</pre>\n</body>\n</html>\n";
        assert_eq!(body, expected);
    }
}
