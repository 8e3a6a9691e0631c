package rule

// usual says whether port is one where TLS or HTTP is served as a rule. There a
// rule that writes the port still wants the proof: on a shared address, bytes
// that name no host would reach whichever host the server likes. Elsewhere
// (22, 5432, 27017 …) a written port lets any protocol through.
//
// Sources: the IANA Service Name and Port Number Registry unless said otherwise.
func usual(port uint16) bool {
	switch port {
	case 80, 591, 8008, 8080, // http, http-alt
		443, 8443, 6443, 8243, 9443, // https, pcsync-https, sun-sr-https, synapse-nhttps, tungsten-https
		8000, 8081, 8888, 4443: // by custom: development servers and second front ends
		return true
	case 2052, 2082, 2086, 2095, 8880, // HTTP at Cloudflare's edge (developers.cloudflare.com, "Network ports")
		2053, 2083, 2087, 2096: // HTTPS there
		return true
	case 465, 993, 995, // submissions, imaps, pop3s (RFC 8314)
		563, 636, 989, 990, 992, 994, // nntps, ldaps, ftps-data, ftps, telnets, ircs
		853,        // domain-s: DNS over TLS (RFC 7858)
		2376, 3269, // docker-s, msft-gc-ssl
		5061, 5349, 5671, 5986, // sips, stuns and turns, amqps, wsmans
		6514, 6697, 8883: // syslog-tls (RFC 5425), ircs-u (RFC 7194), secure-mqtt
		return true
	}
	return false
}
