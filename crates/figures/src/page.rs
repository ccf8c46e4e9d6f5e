//! A page of tables and pictures in one file: no script, nothing to fetch, bright and dark.

use std::fmt::Write;

use super::Figure;

const STYLE: &str = "\
:root{color-scheme:light dark;--paper:#fff;--ink:#20242b;--muted:#5b6470;--line:#e3e6ea}\
@media (prefers-color-scheme:dark){:root{--paper:#14171c;--ink:#e0e4ea;--muted:#9aa3af;--line:#2d333c}}\
body{background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif;max-width:1080px;margin:2.5rem auto;\
padding:0 1.25rem}h1{font-size:1.5rem;margin:0}h2{font-size:1.15rem;margin:2.25rem 0 .25rem}p{margin:.25rem 0 .75rem}\
.muted,figcaption,summary,dd{color:var(--muted)}.wide{overflow-x:auto}\
table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:14px}\
th,td{padding:.32rem .7rem;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}\
th{font-weight:600;color:var(--muted)}th.left,td.left{text-align:left}\
figure{margin:2rem 0}svg{max-width:100%;height:auto}figcaption{font-size:14px;max-width:860px}a{color:inherit}dt{font-weight:600}dd{margin:0 0 .4rem}";

/// A page under construction.
pub struct Page(String);

impl Page {
    /// A page with its title and a line below it.
    pub fn new(title: &str, about: &str) -> Self {
        let title = escaped(title);
        Self(format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>{title}</title>\n\
             <style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n<p class=\"muted\">{}</p>\n",
            escaped(about)
        ))
    }

    /// A heading.
    pub fn heading(&mut self, text: &str) {
        let _ = writeln!(self.0, "<h2>{}</h2>", escaped(text));
    }

    /// A paragraph.
    pub fn paragraph(&mut self, text: &str) {
        let _ = writeln!(self.0, "<p class=\"muted\">{}</p>", escaped(text));
    }

    /// A table; the first row is the header, and some columns hold words.
    pub fn table(&mut self, table: &[Vec<String>], words: &[&str]) {
        let Some(header) = table.first() else { return };
        let left: Vec<&str> =
            header.iter().map(|name| if words.contains(&name.as_str()) { " class=\"left\"" } else { "" }).collect();
        self.0 += "<div class=\"wide\"><table>\n";
        for (index, row) in table.iter().enumerate() {
            let tag = if index == 0 { "th" } else { "td" };
            self.0 += "<tr>";
            for (cell, left) in row.iter().zip(&left) {
                let _ = write!(self.0, "<{tag}{left}>{}</{tag}>", escaped(cell));
            }
            self.0 += "</tr>\n";
        }
        self.0 += "</table></div>\n";
    }

    /// A picture inside the page, with its caption and the way to its data.
    pub fn figure(&mut self, figure: &Figure, picture: &str) {
        let name = escaped(&figure.name);
        let _ = write!(
            self.0,
            "<figure>\n{picture}<figcaption>{} Data: <a href=\"plots/{name}.csv\">{name}.csv</a></figcaption>\n\
             </figure>\n",
            escaped(&figure.caption)
        );
    }

    /// Markup as it is.
    pub fn raw(&mut self, markup: &str) {
        self.0 += markup;
    }

    /// The whole page.
    pub fn finish(self) -> String {
        self.0 + "</body>\n</html>\n"
    }
}

/// Text that cannot be taken for markup.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
