# In the emulated machine, as a service of its own. What is told begins with "held: "; WRONG in it is a failure.
unit=samehost-scan.service
held() { echo "held: $*"; }
last() { journalctl --unit "$1" --output cat --no-pager | grep -v '^\(Starting\|Finished\|Deactivated\|[^ ]*: \(Deactivated\|Consumed\)\)' | grep -m 1 -i "$2"; }
finish() { held "$1"; systemctl poweroff --force --force; exit; }
held "$(systemctl --version | head -n 1), Linux $(uname -r)"
for service in dbus systemd-journald prometheus-node-exporter; do systemctl start "$service" 2>/dev/null; done

# A server of another user, and a client.
setpriv --reuid=65534 --regid=65534 --clear-groups perl -MIO::Socket::INET -e '
	$s = IO::Socket::INET->new(Listen => 5, LocalAddr => "127.0.0.1:7777"); $c = $s->accept; syswrite $c, "x"; sleep 9999' &
perl -MIO::Socket::INET -e '
	until ($c = IO::Socket::INET->new("127.0.0.1:7777")) { select undef, undef, undef, .1 }
	sysread $c, $b, 1; open F, ">/run/there"; sleep 9999' &
for _ in $(seq 600); do [ ! -e /run/there ] || break; sleep 0.1; done

for time in first second; do
	systemctl start $unit || finish "WRONG: $(journalctl --unit $unit --no-pager | tail -n 5 | tr '\n' '/')"
done
held "two runs of ExecStart: $(last $unit 'first scan') / $(last $unit 'no change')"
kept=$(ls -t /var/lib/samehost/scans/* | head -n 1)
! journalctl --unit $unit --no-pager | grep -q 'left out' || finish "WRONG: $(journalctl --unit $unit --no-pager | grep 'left out')"
grep -q 7777 "$kept" || finish "WRONG: the scan lacks a connection: $(cat "$kept")"
held "root's own scan afterwards: $(samehost scan --since last --quiet | grep -m 1 .)"
samehost scan --since last --quiet | grep -q '^No change' || finish "WRONG: root's own scan differs"

# The same sandbox around a program that tries what is forbidden, and that program without it.
sed 's|^ExecStart=.*|ExecStart=/usr/bin/perl /probe.pl|; s|^StateDirectory=.*|StateDirectory=probe|' \
	/usr/lib/systemd/system/$unit >/run/systemd/system/probe.service
systemctl daemon-reload
systemctl start probe.service
held "in the unit: $(last probe.service '^refused')"
held "in the unit: $(last probe.service '^confined')"
journalctl --unit probe.service --output cat --no-pager | grep '^allowed: .' | sed 's/^/held: WRONG: in the unit /'
held "without it: $(perl /probe.pl | grep '^allowed')"

# With the drop-in of docs/metrics.md. Its --observe measures only where there is traffic.
perl -MIO::Socket::INET -e '
	$listener = IO::Socket::INET->new(LocalAddr => "127.0.0.1", LocalPort => 7777, Listen => 5) or die;
	while ($client = $listener->accept) { syswrite $client, $bytes while sysread $client, $bytes, 100 }' &
sleep 1
perl -MIO::Socket::INET -e '
	$server = IO::Socket::INET->new("127.0.0.1:7777") or die;
	while (1) { syswrite $server, "x" x 50; sysread $server, $bytes, 100; select undef, undef, undef, 0.005 }' &
mkdir -p /etc/systemd/system/$unit.d /var/lib/prometheus/node-exporter
cp /metrics.conf /etc/systemd/system/$unit.d/override.conf
systemctl daemon-reload
systemctl start $unit || finish "WRONG: $(journalctl --unit $unit --no-pager | tail -n 5 | tr '\n' '/')"
file=/var/lib/prometheus/node-exporter/samehost.prom
held "with the drop-in for metrics: $(stat -c '%n, %a of %U' $file), $(grep -c '^samehost_' $file) series"
grep -q '^samehost_predicted_saving_cpu_cores{' $file || held "WRONG: nothing predicts a saving"
served=$(perl -MIO::Socket::INET -e '
	$c = IO::Socket::INET->new("127.0.0.1:9100") or exit; syswrite $c, "GET /metrics HTTP/1.0\r\n\r\n"; print while <$c>' | grep -c '^samehost_')
held "node_exporter of Debian serves $served of them"
[ "$served" -gt 0 ] || held "WRONG: node_exporter serves none"
finish "the end"
