//! The main class of a Java program, from its command line as the launcher reads it. What stands behind it are the
//! program's own arguments, and a class that is named there, or in an option, says nothing. Pure.

/// Options of the launcher whose value is the next word.
const WITH_VALUE: &[&str] = &[
    "-cp",
    "-classpath",
    "--class-path",
    "-p",
    "--module-path",
    "--upgrade-module-path",
    "--add-modules",
    "--add-exports",
    "--add-opens",
    "--add-reads",
    "--limit-modules",
    "--patch-module",
    "--describe-module",
    "--source",
];

/// The main class of a command line; of a module (`-m MODULE/CLASS`) its class. `None` where a file is run (`-jar`).
pub(crate) fn main_class(words: &[String]) -> Option<&str> {
    let mut words = words.iter().skip(1).map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "-m" | "--module" => return words.next()?.split_once('/').map(|(_, class)| class),
            "-jar" => return None,
            word if WITH_VALUE.contains(&word) => {
                words.next();
            }
            word if word.starts_with("--module=") => {
                return word.split_once('/').map(|(_, class)| class);
            }
            // An option, or a file of options.
            word if word.starts_with(['-', '@']) => {}
            class => return Some(class),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Option<String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        main_class(&words).map(str::to_owned)
    }

    #[test]
    fn the_first_word_that_is_no_option_is_the_class() {
        // As tomcat10.service, Kafka's and Elasticsearch's scripts start them.
        let tomcat = "java -Djava.util.logging.config.file=/etc/l -classpath /a.jar:/b.jar -Dcatalina.base=/var/lib/tomcat10 org.apache.catalina.startup.Bootstrap start";
        assert_eq!(of(tomcat).as_deref(), Some("org.apache.catalina.startup.Bootstrap"));
        let kafka = "java -Xmx1G -server -cp /opt/kafka/libs/a.jar kafka.Kafka /etc/server.properties";
        assert_eq!(of(kafka).as_deref(), Some("kafka.Kafka"));
        let search = "java -Xms1g --module-path /lib --add-modules=jdk.net -m org.elasticsearch.server/org.elasticsearch.bootstrap.Elasticsearch";
        assert_eq!(of(search).as_deref(), Some("org.elasticsearch.bootstrap.Elasticsearch"));
    }

    #[test]
    fn a_class_elsewhere_says_nothing() {
        assert_eq!(of("java -jar app.jar kafka.Kafka"), None);
        assert_eq!(of("java -cp kafka.Kafka Mine kafka.Kafka").as_deref(), Some("Mine"));
        assert_eq!(of("java -Dname=kafka.Kafka"), None);
        assert_eq!(of("java"), None);
    }
}
